"""P3-LLM with the AXI shell: its dimensions, and the host library with its RTL."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golden.shell.p3llm_axi import P3llmProgram
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.target import Target
from testbenches.runner import Request, run_testbench

pytestmark = pytest.mark.depends("p3llm_axi")

ENTRY = entry_named("p3llm_axi")
TINY: P3llmAxiParameters = ENTRY.parameters("tiny")


@pytest.mark.full
def test_the_host_library_decodes_the_golden_models_text(tmp_path: Path) -> None:
    """The form for FPGAs, whose compiled program the unit's simulation has too."""
    emitted = emit_unit(ENTRY, "tiny", Target.FPGA)
    result = run_testbench(
        top=ENTRY.top,
        preset="tiny",
        parameters=TINY,
        testbench="tests.shell.tb_p3llm_host",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, lint=True),
    )
    assert (result.tests, result.failures, result.first_failure) == (3, 0, "")
    assert result.values_checked > 0 and result.mismatches == 0


def test_positions_of_smollm2_are_words_of_two_beats() -> None:
    """Eight units of 16 elements: 256 bytes, which the units multiply in two cycles."""
    p: P3llmAxiParameters = ENTRY.parameters("smollm2")
    assert p.regions["banks"] == 256 == 2 * p.data_bytes
    assert p.positions == 2 * p.p3llm.layer_positions


def test_a_token_is_a_program_of_all_layers() -> None:
    """The first layer takes the states of the program, the others those of the layer before."""
    program, p = P3llmProgram(TINY), TINY
    program.token([9], [1, 2], predict=True)
    layout = p.instruction_layout
    steps = [layout.from_bits(word) for word in program.words["instructions"]]
    found = [(one.step.layer, one.step.position[0], one.follows) for one in steps]
    assert found == [(0, 9, 0), (1, 9, 1), (2, 9, 1)]
    assert program.words["states"] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        ({"windows": 1}, "windows must be a power of two between 2 and 16, not 1"),
        (
            {"window_positions": 8},
            "window_positions must be a power of two between 16 and 256, not 8",
        ),
        (
            {"p3llm": entry_named("p3llm").parameters("paper")},
            "bytes per position must be at most 512 with the AXI shell, not 4096",
        ),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **changes)
