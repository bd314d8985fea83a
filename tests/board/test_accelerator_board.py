"""The top of a board in simulation, through its pins."""

from pathlib import Path

import pytest

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import BoardParameters
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.target import Target
from testbenches.runner import Request, run_testbench


@pytest.mark.parametrize(
    ("top", "only", "tests"),
    [
        pytest.param("veda_axi", None, 4, marks=pytest.mark.depends("veda_axi")),
        # What the accelerator does not change is not tested again.
        *(
            pytest.param(
                top, "tokens", 1, marks=[pytest.mark.depends(top), pytest.mark.full], id=top
            )
            for top in ("kelle_axi", "meadow_axi")
        ),
    ],
)
def test_the_board_generates_tokens_through_its_pins(
    tmp_path: Path, top: str, only: str | None, tests: int
) -> None:
    # The packed top with a faster serial line: four cycles per bit.
    shell = entry_named(top).parameters("tiny")
    parameters = BoardParameters(shell=shell, divisor=4, silence=400)
    name = "accelerator_board"
    emission = Emission(top=AcceleratorBoard(parameters=parameters), name=name, target=Target.FPGA)
    *verilog, _file_list = write_verilog(emission, tmp_path / "rtl")
    result = run_testbench(
        top=name,
        preset="tiny",
        parameters=parameters,
        testbench="tests.board.tb_accelerator_board",
        ports=emission.modules[-1].ports,
        verilog=verilog,
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, lint=True, only=only),
    )
    assert (result.failures, result.first_failure) == (0, "")
    assert result.tests == tests
    assert result.values_checked > 0 and result.mismatches == 0
