"""The top of a board in simulation, through its pins."""

from pathlib import Path

import pytest

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import BoardParameters
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.target import Target
from testbenches.runner import Request, run_testbench

pytestmark = pytest.mark.depends("veda_axi")

FAST = BoardParameters(shell=entry_named("veda_axi").parameters("tiny"), divisor=4, silence=400)
"""The packed top with a faster serial line: four cycles per bit."""


def test_the_board_generates_tokens_through_its_pins(tmp_path: Path) -> None:
    emission = Emission(
        top=AcceleratorBoard(parameters=FAST), name="accelerator_board", target=Target.FPGA
    )
    *verilog, _file_list = write_verilog(emission, tmp_path / "rtl")
    result = run_testbench(
        top="accelerator_board",
        preset="tiny",
        parameters=FAST,
        testbench="tests.board.tb_accelerator_board",
        ports=emission.modules[-1].ports,
        verilog=verilog,
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, lint=True),
    )
    assert (result.failures, result.first_failure) == (0, "")
    assert result.tests == 4
    assert result.values_checked > 0 and result.mismatches == 0
