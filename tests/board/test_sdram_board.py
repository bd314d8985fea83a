"""The packed top of a board with SDRAM in simulation, with a model of the chip at its pins."""

from pathlib import Path

import pytest

from hdl.board.board_parameters import SDRAM_BYTES, BoardParameters
from hdl.catalog import entry_named
from hdl.emit import Port
from hdl.target import Target
from synth.bitstream import emit_board
from testbenches.runner import Request, run_testbench

HERE = Path(__file__).parent

MODELS = ("ecp5_cells", "sdram_chip", "sdram_board")
"""Verilog of the pins' cells, the chip, and both together."""

PORTS = (
    *(Port((name,), "input", 1) for name in ("clk", "rst", "serial_in")),
    *(Port((name,), "output", 1) for name in ("serial_out", "wifi_gpio0")),
    Port(("leds",), "output", 3),
    *(Port((name,), "output", 32) for name in ("violations", "refreshes", "reads", "writes")),
)
"""Ports of the module `sdram_board`."""

ONLY = "tokens|errors|refused"
"""Tests of the testbench: the content of the SDRAM is not defined after the button."""


@pytest.mark.depends("veda_axi")
def test_the_board_with_sdram_generates_tokens_through_its_pins(tmp_path: Path) -> None:
    # The packed top with a faster serial line: four cycles per bit.
    shell = entry_named("veda_axi").parameters("tiny")
    parameters = BoardParameters(
        shell=shell, divisor=4, silence=400, memory_bytes=SDRAM_BYTES, sdram=True
    )
    verilog = emit_board(parameters, "packed_top", tmp_path, clock_mhz=25.0)
    result = run_testbench(
        top="sdram_board",
        preset="tiny",
        parameters=parameters,
        testbench="tests.board.tb_accelerator_board",
        ports=PORTS,
        verilog=[*verilog.files, *(HERE / f"{name}.v" for name in MODELS)],
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, only=ONLY),
    )
    assert (result.failures, result.first_failure) == (0, "")
    assert result.tests == 3
    assert result.values_checked > 0 and result.mismatches == 0
