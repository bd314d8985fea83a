"""Pipelined softmax: model compared with float64 and fractions; parameters."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden.llm import open_trace
from golden.meadow.tile.pipelined_softmax import (
    error_bound,
    exact_softmax,
    exponential_table,
    exponentials,
    softmax,
)
from hdl.catalog import entry_named
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmaxParameters

PRESETS = ["tiny", "smollm2", "paper"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": 1}, "scores must be an integer from 2 to 4096, not 1"),
        ({"probability_bits": 7}, "probability_bits must be an integer from 8 to 16, not 7"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PipelinedSoftmaxParameters(**change)


@pytest.mark.parametrize("preset", PRESETS)
def test_division_is_within_the_bound(preset: str) -> None:
    """Compare with quotients of the same exponentials, for several tables."""
    p = entry_named("pipelined_softmax").parameters(preset)
    rng = np.random.default_rng(3)
    tables = [exponential_table(step) for step in (1 / 64, 1 / 16, 1.0)]
    for table in [*tables, rng.integers(1, 1 << 16, 256)]:
        for _ in range(40):
            length = int(rng.integers(1, p.scores + 1))
            scores = rng.integers(-128, 128, length) >> rng.integers(0, 8)
            keep = rng.integers(0, 2, length)
            keep[rng.integers(length)] = 1
            powers = exponentials(scores, keep, table)
            exact = powers / powers.sum()
            got = softmax(scores, keep, table, p)
            steps = exact * 2.0**p.probability_bits
            assert np.all(np.abs(got - steps) <= error_bound(exact, p) + 1e-9)
            assert not got[keep == 0].any()


def test_quotients_are_within_a_step_and_a_half_of_fractions() -> None:
    p = PipelinedSoftmaxParameters(scores=512, probability_bits=16)
    table = exponential_table(1 / 16)
    scores = np.array([5, -3, 5, 100, 99, -128])
    powers = [int(table[100 - score]) for score in scores]
    got = softmax(scores, np.ones(6, int), table, p)
    for power, share in zip(powers, got, strict=True):
        exact = Fraction(power, sum(powers)) * (1 << 16)
        assert abs(share - exact) <= Fraction(3, 2)


@pytest.mark.parametrize("count", [1, 2, 3, 255, 510, 511, 512])
def test_equal_scores_share_equally_at_any_length(count: int) -> None:
    """With 8 bits, rows of more than 512 equal scores are all 0; with 12 bits each has 8 steps."""
    p = PipelinedSoftmaxParameters(scores=512, probability_bits=12)
    got = softmax(np.full(count, -7), np.ones(count, int), exponential_table(0.1), p)
    assert np.all(np.abs(got - 4096 / count) <= 1)
    assert got.min() > 0


def test_masked_score_does_not_affect_the_maximum() -> None:
    """A score of -128 that is not masked has a probability."""
    p = PipelinedSoftmaxParameters(scores=8, probability_bits=12)
    table = np.full(256, 65535)
    got = softmax(np.array([-128, 127, -128]), np.array([1, 0, 1]), table, p)
    assert got.tolist() == [2048, 0, 2048]


@pytest.mark.parametrize(("bits", "worst"), [(12, 4e-3), (16, 4e-3), (8, 6e-3)])
def test_real_attention_is_near_float64(bits: int, worst: float) -> None:
    """Compare INT8 scores of SmolLM2, with one scale per head, with the float64 softmax of them."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = PipelinedSoftmaxParameters(scores=512, probability_bits=bits)
    for layer in trace.layers:
        for head in range(0, trace.heads, 4):
            scores = trace.attention_trace(layer, head).scores[:512, :512]
            keep = np.isfinite(scores).astype(np.int64)
            finite = np.where(keep, scores, 0).astype(np.float64)
            step = np.abs(finite).max() / 127
            raw = np.rint(finite / step).astype(np.int64)
            rows = [0, 100, 511]
            got = softmax(raw[rows], keep[rows], exponential_table(step), p) / 2.0**bits
            for row, shares in zip(rows, got, strict=True):
                exact = exact_softmax(raw[row], keep[row], step)
                assert np.abs(shares - exact).max() < worst
                if bits >= 12:
                    assert abs(shares.sum() - 1) < 512 * 2.0 ** -(bits + 1)
