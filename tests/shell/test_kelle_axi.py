"""Kelle with the AXI shell: its dimensions, its words, and the host library with its RTL."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.kelle.eviction.eviction_controller import EMPTY, KEPT, Placement
from golden.shell.kelle_axi import input_place, placement_words, placements_of
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.kelle import catalog as kelle
from hdl.shell.kelle_axi_parameters import LONGEST, KelleAxiParameters
from hdl.target import Target
from testbenches.runner import Request, run_testbench
from testbenches.shell.kelle_axi_work import text_work

pytestmark = pytest.mark.depends("kelle_axi")

ENTRY = entry_named("kelle_axi")
TINY: KelleAxiParameters = ENTRY.parameters("tiny")
SMOLLM2: KelleAxiParameters = ENTRY.parameters("smollm2")


@pytest.mark.full
def test_the_host_library_decodes_the_golden_models_text(tmp_path: Path) -> None:
    """The form for FPGAs, whose compiled program the unit's simulation has too."""
    emitted = emit_unit(ENTRY, "tiny", Target.FPGA)
    result = run_testbench(
        top=ENTRY.top,
        preset="tiny",
        parameters=TINY,
        testbench="tests.shell.tb_kelle_host",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=tmp_path,
        request=Request(seed=1, target=Target.FPGA, lint=True),
    )
    assert (result.tests, result.failures, result.first_failure) == (3, 0, "")
    assert result.values_checked > 0 and result.mismatches == 0


def test_inputs_that_may_be_requested_have_places_of_their_own() -> None:
    """All tokens of the window, and the one that has just left it, in each layer."""
    for p in (TINY, SMOLLM2):
        window, layers = range(20, 20 + p.kelle.window + 1), range(p.kelle.layers)
        places = [input_place(p, layer, token) for layer in layers for token in window]
        words = {place + part for place in places for part in range(p.kelle.hidden_slices)}
        assert len(words) == len(places) * p.kelle.hidden_slices
        assert max(words) < 1 << p.input_layout.size


def test_weights_of_smollm2_are_its_parameters() -> None:
    """A layer has 3,538,944 weights of one byte, and a word 128 bytes."""
    assert SMOLLM2.layer_words == 3_538_944 // 128
    assert SMOLLM2.vocabulary_words == 0


def test_placements_are_read_back_from_words() -> None:
    placements = [
        Placement(0, 7, EMPTY, KEPT),
        Placement(1, 0, 40, KEPT),
        Placement(1, 3, 0, 1),
        Placement(0, 1, 63, 0),
    ]
    words = placement_words(TINY, placements)
    assert all(0 <= word < 1 << 8 * TINY.regions["placements"] for word in words)
    assert placements_of(TINY, words) == placements


(KELLE,) = (entry.presets for entry in kelle.UNITS if entry.top == "kelle")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        ({"token_depth": 4}, "token_depth must be an integer from 5 to 64, not 4"),
        ({"kelle": KELLE["tiny_batch"]}, "batch must be 1 with the AXI shell, not 3"),
        ({"clock_mhz": 1000}, "intervals of 7200 us at 1000 MHz must have less than 32 ticks"),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **changes)


def test_rejects_an_lm_head_that_is_longer_than_a_burst() -> None:
    own = replace(TINY.kelle, vocabulary_size=1 << 19)
    words = (1 << 19) * own.hidden_size // own.beat_bytes
    with pytest.raises(
        ValueError, match=f"words of a step's weights must be at most {LONGEST}, not {words}"
    ):
        replace(TINY, kelle=own)


@pytest.mark.parametrize("preset", ["tiny", "tiny_opt"])
def test_the_work_of_the_small_presets_requests_an_input(preset: str) -> None:
    """With other parameters, the bench's text may use one port less."""
    assert text_work(ENTRY.parameters(preset), np.random.default_rng(1)).stores > 0
