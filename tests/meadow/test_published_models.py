"""The page's statements about published models and the preset `paper` agree with the parameters."""

import re
from dataclasses import replace

import pytest

from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.paths import ROOT

PAGE = (ROOT / "docs" / "meadow" / "meadow.md").read_text()
PAPER: MeadowParameters = entry_named("meadow").parameters("paper")
MODELS = {
    "OPT-1.3B": (2048, 8192, 32, 32),
    "SmolLM2-1.7B": (2048, 8192, 32, 32),
    "TinyLlama-1.1B": (2048, 5632, 32, 4),
}
"""Hidden size, feed-forward size, heads, key/value heads."""

SHOWN = {
    r"hidden_size must be a multiple of slices \* head_size = \d+, not": "{:,} is no multiple",
    "intermediate_size must be at most 64 tiles of head_size outputs of a GEMM = 4096, not": (
        "{:,} exceeds 64 tiles"
    ),
}
"""Rules that refuse a model, and how the page's table gives the value of each."""


def refusal(model: str, slices: int) -> str:
    """Return the reason for the refusal of a model in the page's words."""
    hidden, inner, heads, kv_heads = MODELS[model]
    with pytest.raises(ValueError) as refused:
        replace(
            PAPER,
            hidden_size=hidden,
            intermediate_size=inner,
            heads=heads,
            kv_heads=kv_heads,
            slices=slices,
        )
    for rule, spelled in SHOWN.items():
        if found := re.fullmatch(rf"{rule} (\d+)", str(refused.value)):
            return spelled.format(int(found[1]))
    raise AssertionError(refused.value)


@pytest.mark.parametrize("model", MODELS)
def test_page_names_the_rule_that_refuses_each_model(model: str) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {model}"))
    even, odd, slice_words = (cell.strip() for cell in row.split("|")[3:6])
    assert {refusal(model, slices) for slices in (2, 4, 8)} == {even}
    assert {refusal(model, slices) for slices in (3, 5, 6, 7)} == {odd}
    _hidden, inner, _heads, _kv_heads = MODELS[model]
    assert inner // (2 * PAPER.head_size) == int(slice_words)
    with pytest.raises(
        ValueError, match=rf"slice_words must be an integer from 1 to 32, not {slice_words}"
    ):
        replace(PAPER.tile, slice_words=int(slice_words))


def test_largest_feed_forward_size_is_64_tiles() -> None:
    accepted = replace(
        PAPER, hidden_size=512, heads=8, kv_heads=8, intermediate_size=4096, slices=4
    )
    assert accepted.tile.heads == 64
    with pytest.raises(ValueError, match=r"intermediate_size .* = 4096, not 4352"):
        replace(accepted, intermediate_size=4352)


def test_page_states_the_tokens_that_the_memory_holds() -> None:
    assert (PAPER.token_words, PAPER.most_tokens) == (72, 512)
    assert replace(PAPER, words=32_768).most_tokens == 455
    assert "`words` addresses hold: 512 at `paper`" in PAGE
    assert "with 32,768 words for 455 tokens 50,331,648" in PAGE


@pytest.mark.parametrize("preset", ["smollm2", "paper"])
def test_page_states_the_bits_of_the_activation_memory(preset: str) -> None:
    p = entry_named("meadow").parameters(preset)
    bits = sum(plane.words * (plane.high - plane.low) * p.head_size for plane in p.planes)
    (row,) = re.findall(rf"\| `{preset}` \| ([\d,]+) words .* \| ([\d,]+) \| [\d,]+", PAGE)
    assert row == (f"{p.planes[0].words:,}", f"{bits:,}")
    assert p.planes[0].words == p.most_tokens * p.token_words


def test_rows_of_short_feed_forward_layers_do_not_overlap() -> None:
    """Head outputs are longer than the rows between the feed-forward matrices."""
    p = replace(PAPER, hidden_size=768, intermediate_size=384, words=1024, slices=2)
    assert p.token_words == 36
    assert p.most_tokens == 1024 // 36


def test_page_states_that_the_unpacker_rate_is_a_choice() -> None:
    assert PAPER.unpacker_items == 16
    assert "weights at the preset's 16 weights/cycle" in PAGE
    assert "published unpacker" not in PAGE
