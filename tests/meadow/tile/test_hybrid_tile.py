"""Tile: model compared with float64 attention, skipped keys, cycles; parameters."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.meadow.tile.hybrid_tile import (
    attend,
    block_of,
    exact_attention,
    linear,
    row_words,
    slot_cycles,
    weight_words,
)
from golden.meadow.tile.requantisation import quantised
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.tile_parameters import TileParameters
from testbenches.meadow.tile.tb_hybrid_tile import real_block, real_linear, real_tensors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be an integer from 1 to 32, not 0"),
        ({"slices": 1}, "slices must be an integer from 2 to 8, not 1"),
        ({"lane_words": 3}, "lane_words must be an integer from 4 to 65536, not 3"),
        ({"tokens": 600}, "tokens must be at most slots, not 600"),
        (
            {"probability_bits": 13},
            "scalar_bits of an element must be more than probability_bits, not 13",
        ),
        (
            {"element": ElementParameters(sum_bits=28)},
            "sum_bits of an element must hold the sums of slots, not 28",
        ),
        (
            {"element": ElementParameters(multipliers=2)},
            "multipliers of an element must be at least 4, not 2",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TileParameters(**change)


@pytest.mark.parametrize("slice_words", [1, 3, 8, 32])
@pytest.mark.parametrize("size", [4, 64])
def test_elements_hold_their_longest_sums(slice_words: int, size: int) -> None:
    """The largest products are those of -128 with -128, and of a probability with -128."""
    p = TileParameters(
        slice_words=slice_words,
        lane_words=32,
        slots=4096,
        element=ElementParameters(multipliers=size),
    )
    gemm, score, output = p.gemm_element, p.score_element, p.output_element
    assert gemm.input_file >= slice_words
    for element, largest in (
        (gemm, slice_words * size << 14),
        (score, size << 14),
        (output, p.slots * ((1 << p.probability_bits) - 1) << 7),
    ):
        assert largest < 1 << element.sum_bits - 1 <= 1 << p.element.sum_bits - 1


def test_elements_contain_only_the_parts_of_their_stage(tmp_path: Path) -> None:
    """First stage: input register files and exact sums; other stages: requantisers alone."""
    emission = Emission(top=entry_named("hybrid_tile").build("tiny"), name="tile")
    files = write_verilog(emission, tmp_path / "rtl")[:-1]
    texts = {file.stem: file.read_text() for file in files}

    def instances(module: str, part: str) -> list[int]:
        found = [text for name, text in texts.items() if name.startswith(module)]
        return sorted(len(re.findall(rf"^  \w+ {part} \(", text, re.M)) for text in found)

    assert instances("operand_feed", "rows") == [0, 0, 1]
    assert instances("operand_feed", "weights") == [0, 0, 0]
    assert instances("parallel_processing_element", "exit") == [0, 1]
    assert instances("broadcasting_processing_element", "exit") == [1]
    assert set(instances("result_exit", "output_file")) == {0}


@pytest.mark.parametrize("layer", [0, 14, 29])
def test_real_attention_is_near_float64(layer: int) -> None:
    """The error is that of INT8 with one scale per tensor and no smoothing."""
    p = entry_named("hybrid_tile").parameters("smollm2_short")
    sizes = {"tokens": 64, "context": 64, "heads": 9, "shared": 3}
    tensors = real_tensors(p, layer, **sizes)
    block = block_of(*tensors, p)
    exact = exact_attention(*tensors, p, block.seen)
    error = attend(block, p) * block.steps["outputs"] - exact
    assert np.sqrt(np.mean(error**2)) < 0.12 * np.sqrt(np.mean(exact**2))


def test_last_token_of_prefill_equals_decode_step() -> None:
    """The tokens of a block have the last positions of the context."""
    p = entry_named("hybrid_tile").parameters("smollm2_short")
    block = real_block(p, 14, tokens=20, context=64, heads=3, shared=3)
    last = type(block)(**{**vars(block), "tokens": block.tokens[-1:]})
    assert np.array_equal(attend(block, p)[:, -1:], attend(last, p))


def test_keys_by_gemm_are_near_those_of_the_model() -> None:
    """Compare the rotated INT8 key projection with the keys of the language model."""
    p = entry_named("hybrid_tile").parameters("smollm2_short")
    states, _query, keys, _values = real_tensors(p, 14, tokens=64, context=64, heads=9, shared=3)
    got = linear(real_linear(p, "k_proj", quantised(states)[0], 3, rotate=True), p)
    error = got * (np.abs(keys).max() / 127) - keys
    assert np.sqrt(np.mean(error**2)) < 0.07 * np.sqrt(np.mean(keys**2))


def test_weights_are_ordered_by_pairs_words_halves_and_slices() -> None:
    p = entry_named("hybrid_tile").parameters("tiny")
    numbers = np.arange(p.width * p.size).reshape(p.width, p.size)
    words = weight_words(numbers, p)
    size = p.size
    # Both outputs of the first pair use the first word of each slice first.
    assert words[0].tolist() == [n * size for n in range(size)]
    assert words[1].tolist() == [(size + n) * size for n in range(size)]
    assert words[2].tolist() == [n * size + 1 for n in range(size)]
    # The next words of the slices follow.
    assert words[4].tolist() == [(2 * size + n) * size for n in range(size)]


def test_cycles_follow_the_formula() -> None:
    """(H ceil(T / 12) + 3) max(F, Qc): OPT-125M and SmolLM2 at 512 and 64 tokens."""
    p = entry_named("hybrid_tile").parameters("smollm2")

    def cycles(tokens: int, **how: Any) -> int:
        return slot_cycles(
            real_block(p, 14, tokens=tokens, context=tokens, heads=9, shared=3, **how), p
        )

    assert cycles(512) == (9 * 43 + 3) * 512
    assert cycles(64) == (9 * 6 + 3) * 96
    assert cycles(512) / cycles(512, skip=True) > 1.8


def test_rows_are_ordered_by_groups_then_by_words() -> None:
    """Two heads of three tokens with five scores, two tokens per group, four scores per word."""
    p = TileParameters(lanes=2, element=ElementParameters(multipliers=4))
    head, token, score = np.ix_(np.arange(1, 3), np.arange(1, 4), np.arange(5))
    first, second = row_words(100 * head + 10 * token + score, p).reshape(2, 6, 4).tolist()
    assert first[:2] == [[110, 111, 112, 113], [120, 121, 122, 123]]
    assert first[2:4] == [[114, 0, 0, 0], [124, 0, 0, 0]]
    assert first[4:] == [[130, 131, 132, 133], [134, 0, 0, 0]]
    assert second[5] == [234, 0, 0, 0]
