"""VEDA with the AXI shell: its dimensions, the places of its lines, and its tokens."""

import re
from dataclasses import replace
from typing import Any

import pytest

from golden.shell.veda_axi import line_place, result_tokens, results_of
from hdl.catalog import entry_named
from hdl.shell.veda_axi_parameters import LONGEST, VedaAxiParameters
from hdl.veda.instructions import Space
from testbenches.veda.model_lines import address

pytestmark = pytest.mark.depends("veda_axi")

ENTRY = entry_named("veda_axi")
TINY: VedaAxiParameters = ENTRY.parameters("tiny")
SMOLLM2: VedaAxiParameters = ENTRY.parameters("smollm2")


@pytest.mark.parametrize("preset", ENTRY.presets)
def test_registers_have_room_for_all_regions_and_sources(preset: str) -> None:
    p: VedaAxiParameters = ENTRY.parameters(preset)
    registers = p.registers
    assert registers.bases == 2 * len(p.regions) and registers.sources == p.core_source + 1
    assert registers.alignment == p.data_bytes and registers.digest == p.digest


def test_lines_of_each_space_are_contiguous_in_their_region() -> None:
    """A layer of SmolLM2 has 2 * 2**15 lines of weights, and the LM head up to 2 * 2**19."""
    layers = range(SMOLLM2.veda.layers)
    for space, region, size in (
        (Space.CACHE, "cache", SMOLLM2.veda.cache_line.size),
        (Space.WEIGHTS, "weights", SMOLLM2.veda.weight_line.size),
    ):
        for layer in layers:
            for line in (0, (1 << size) - 1):
                here = address(SMOLLM2.veda, space, layer=layer, line=line)
                assert line_place(SMOLLM2, here) == (region, (layer << size) + line)
    for space, region in ((Space.ANGLES, "angles"), (Space.VOCABULARY, "vocabulary")):
        first = address(SMOLLM2.veda, space)
        for line in (0, 1, 8191):
            assert line_place(SMOLLM2, first + line) == (region, line)
    last = address(SMOLLM2.veda, Space.VOCABULARY) + (1 << 20) - 1
    assert line_place(SMOLLM2, last) == ("vocabulary", (1 << 20) - 1)


def test_tokens_of_results_are_read_back_in_any_order_of_kinds() -> None:
    predictions, victims = [(44, 0x1FFF_FFFF), (0, 0)], [(2, 15), (0, 0)]
    tokens = result_tokens(TINY, predictions, victims)
    assert all(0 <= token < 1 << 32 for token in tokens)
    mixed = [tokens[4], *tokens[:2], tokens[5], *tokens[2:4]]
    assert results_of(TINY, mixed) == (predictions, victims)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        ({"token_depth": 3}, "token_depth must be an integer from 4 to 64, not 3"),
        ({"mean": 8192}, "mean must be an integer from 0 to 8191, not 8192"),
        (
            {"axi_address_bits": 22},
            "address_bits must address at most the 2**22 bytes of AXI4, not 20",
        ),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **changes)


def test_rejects_an_lm_head_that_is_longer_than_a_burst() -> None:
    veda = replace(TINY.veda, vocabulary_size=262144, hidden_size=512)
    lines = veda.vocabulary_beats
    assert lines > LONGEST
    with pytest.raises(
        ValueError, match=f"lines of a burst must be at most {LONGEST}, not {lines}"
    ):
        replace(TINY, veda=veda)
