"""LAD with the AXI shell: its dimensions, and its words in memory."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.lad.lad_tile import Head
from hdl.catalog import entry_named
from hdl.shell.lad_axi_parameters import LONGEST, LadAxiParameters
from testbenches.lad.stored_heads import ROWS
from testbenches.shell.lad_axi_work import random_head, text_work
from testbenches.shell.lad_text import REGION_OF, LadText, head_field, head_words

pytestmark = pytest.mark.depends("lad_axi")

ENTRY = entry_named("lad_axi")
TINY: LadAxiParameters = ENTRY.parameters("tiny")
PAIRS: LadAxiParameters = ENTRY.parameters("tiny_pairs")
SMOLLM2: LadAxiParameters = ENTRY.parameters("smollm2")
PAPER: LadAxiParameters = ENTRY.parameters("paper")


def test_weights_of_smollm2_are_its_parameters() -> None:
    """A layer has 3,538,944 weights, and a unit's word 64; only the last groups have padding."""
    words = 7 * SMOLLM2.lad.layer_transfers
    assert 0 <= words - 3_538_944 / 64 < 7 * 4 * 24
    assert SMOLLM2.unit_words == 3 * SMOLLM2.lad.layer_transfers
    assert SMOLLM2.lad.vocabulary_transfers == 0


def test_each_unit_has_consecutive_weights() -> None:
    """The words of all units, layers and pieces fill the region without overlap."""
    work = text_work(TINY, np.random.default_rng(1))
    places = [place + n for place, words in work.text.weight_words() for n in range(len(words))]
    assert sorted(places) == list(range(TINY.region_words["weights"]))


@pytest.mark.parametrize("p", [TINY, PAIRS, SMOLLM2], ids=["tiny", "tiny_pairs", "smollm2"])
def test_rows_of_a_head_are_read_back_from_words(p: LadAxiParameters) -> None:
    rng = np.random.default_rng(2)
    head: Head = random_head(p, rng)
    head.caches = rng.integers(0, 1 << 16, head.caches.shape).astype(np.uint64)
    words = head_words(p, head)
    for region, own in words.items():
        assert own.shape[1] <= p.regions[region]
    for name in (*ROWS, "counters", "caches"):
        expected = getattr(head, name)
        found = head_field(p, name, words[REGION_OF[name]])[: len(expected)]
        assert np.array_equal(found, expected), name


def test_states_are_read_back_from_words() -> None:
    work = text_work(TINY, np.random.default_rng(3))
    lad, rng = TINY.lad, np.random.default_rng(3)
    states = rng.integers(0, 1 << 16, (2, lad.batch, lad.hidden_size)).astype(np.uint16)
    flags = np.array([False, True])
    text: LadText = work.text
    found = text.states_of(text.state_words(states, flags))
    assert np.array_equal(found[0], states) and np.array_equal(found[1], flags)


@pytest.mark.parametrize(
    ("p", "changes", "message"),
    [
        (TINY, {"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        (TINY, {"token_depth": 1}, "token_depth must be an integer from 2 to 64, not 1"),
        (
            TINY,
            {"axi_address_bits": 20},
            "address_bits must address at most the 2**20 bytes of AXI4, not 20",
        ),
    ],
)
def test_rejects_illegal_parameters(
    p: LadAxiParameters, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(p, **changes)


def test_rejects_an_lm_head_that_is_longer_than_a_burst() -> None:
    own = replace(PAPER.lad, vocabulary_size=1 << 20)
    words = own.vocabulary_transfers
    with pytest.raises(
        ValueError, match=f"words of a burst of weights must be at most {LONGEST}, not {words}"
    ):
        replace(PAPER, lad=own)
