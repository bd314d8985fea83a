"""The page's statements about published models and the preset `paper` agree with the parameters."""

import re
from dataclasses import replace

import pytest

from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.meadow.parameters import MeadowParameters
from hdl.paths import ROOT
from hdl.target import Target
from testbenches.lint import lint_unit
from testbenches.meadow.published_models import MODELS, model_parameters

PAGE = (ROOT / "docs" / "meadow" / "meadow.md").read_text()
PAPER: MeadowParameters = entry_named("meadow").parameters("paper")
NEW = [model for model in MODELS if model != "OPT-125M"]
"""Models whose dimensions no preset has."""


@pytest.mark.parametrize("model", NEW)
def test_page_states_the_dimensions_of_each_model(model: str) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {model}"))
    p = model_parameters(model)
    shown = [cell.strip() for cell in row.split("|")[3:7]]
    tiles, words = p.tile.heads, p.token_words
    packets = 8 * p.hidden_size * p.intermediate_size // p.unpacker.unpacker.packet_bits
    assert shown == [f"{value:,}" for value in (p.tile.slice_words, tiles, words, packets)]
    assert packets <= p.longest_burst
    assert p.most_tokens == p.tokens == 512


@pytest.mark.parametrize("model", NEW)
def test_refuses_slices_that_do_not_divide_a_row(model: str) -> None:
    with pytest.raises(ValueError, match="must be a multiple of slices"):
        replace(model_parameters(model), slices=3)


@pytest.mark.full
@pytest.mark.parametrize("model", NEW)
def test_hardware_of_each_model_is_lint_clean(model: str) -> None:
    unit = entry_named("meadow").unit(parameters=model_parameters(model, lanes=1))
    message = lint_unit("meadow", Emission(top=unit, name="meadow", target=Target.FPGA))
    assert not message, message


def test_largest_feed_forward_size_is_128_tiles() -> None:
    accepted = replace(
        PAPER, hidden_size=512, heads=8, kv_heads=8, intermediate_size=8192, slices=4
    )
    assert accepted.tile.heads == 128
    small = {"hidden_size": 512, "heads": 16, "kv_heads": 16, "slices": 4}
    element = replace(PAPER.element, multipliers=32)
    with pytest.raises(ValueError, match=r"intermediate_size .* = 4096, not 4224"):
        replace(PAPER, **small, element=element, intermediate_size=4224)


def test_page_states_the_tokens_that_the_memory_holds() -> None:
    assert (PAPER.token_words, PAPER.most_tokens) == (72, 256)
    assert replace(PAPER, words=16_384).most_tokens == 227
    assert "`words` addresses hold: 256 at `paper`" in PAGE
    assert "with 16,384 words for 227 tokens 25,165,824" in PAGE


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
