"""MEADOW with the AXI shell: its dimensions, and the host library with its RTL."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golden.shell.meadow_axi import prediction_tokens
from golden.shell.shell_jobs import JobError, Region, program_words, refused
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.target import Target
from testbenches.runner import Request, run_testbench

pytestmark = pytest.mark.depends("meadow_axi")

ENTRY = entry_named("meadow_axi")
TINY: MeadowAxiParameters = ENTRY.parameters("tiny")


@pytest.mark.full
def test_the_host_library_generates_the_golden_models_text(tmp_path: Path) -> None:
    """The form for FPGAs, whose compiled program the unit's simulation has too."""
    emitted = emit_unit(ENTRY, "tiny", Target.FPGA)
    result = run_testbench(
        top=ENTRY.top,
        preset="tiny",
        parameters=TINY,
        testbench="tests.shell.tb_meadow_host",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, lint=True),
    )
    assert (result.tests, result.failures, result.first_failure) == (4, 0, "")
    assert result.values_checked > 0 and result.mismatches == 0


@pytest.mark.parametrize("preset", ENTRY.presets)
def test_registers_have_room_for_all_regions_and_sources(preset: str) -> None:
    p: MeadowAxiParameters = ENTRY.parameters(preset)
    registers = p.registers
    assert registers.bases == 2 * len(p.regions) and registers.sources == p.core_source + 1
    assert registers.alignment == p.data_bytes and registers.digest == p.digest


@pytest.mark.parametrize(
    ("bits", "expected"), [(1, 1), (8, 1), (17, 4), (64, 8), (65, 16), (96, 16), (305, 40)]
)
def test_words_are_whole_beats_or_parts_of_one(bits: int, expected: int) -> None:
    assert TINY.word_bytes(bits) == expected


def test_refused_requests_of_the_model() -> None:
    regions = {name: Region(0x100, 0x140) for name in TINY.regions}
    # A word of the vectors has 16 bytes.
    assert refused(TINY, regions, "vector_reads", 0, 4) is None
    assert refused(TINY, regions, "vector_reads", 3, 2) == JobError(3, 2, 0x130)
    assert refused(TINY, regions, "state_writes", 4, 1) == JobError(3, 3, 0x140)
    large = {name: Region(0, 1 << 40) for name in TINY.regions}
    longest = TINY.meadow.longest_burst
    assert refused(TINY, large, "packet_reads", 0, longest) is None
    assert refused(TINY, large, "packet_reads", 1, longest + 1) == JobError(3, 8, 8)


def test_words_of_programs_and_tokens_of_predictions() -> None:
    assert program_words([1, 0x203], 4).tolist() == [[1, 0, 0, 0], [3, 2, 0, 0]]
    assert prediction_tokens([(7, -1), (8, 5)]) == [7, 0xFFFF_FFFF, 8, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        ({"token_depth": 1}, "token_depth must be an integer from 2 to 64, not 1"),
        (
            {"axi_address_bits": 32},
            "address_bits must address at most the 2**32 bytes of AXI4, not 32",
        ),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **changes)
