"""Softmax: the model against float64 and against plain integers; its parameters."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.arith.reciprocal import reciprocal
from golden.llm import open_trace
from golden.nonlinear.softmax import error_bound, exact_softmax, power, quantise_scores, softmax
from hdl.catalog import entry_named
from hdl.nonlinear.softmax import SoftmaxParameters
from testbenches.nonlinear.tb_softmax import extreme_rows

SMALL = SoftmaxParameters(lanes=4, scores=64)
scores = st.integers(-(1 << 15), (1 << 15) - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 12}, "lanes must be a power of two between 1 and 64, not 12"),
        ({"scores": 32}, "scores must be at least two slices, not 32"),
        ({"scores": 100}, "scores must be a multiple of lanes, not 100"),
        ({"rows": 0}, "rows must be an integer from 1 to 16, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SoftmaxParameters(**change)


def test_four_segments_are_continuous_and_accurate() -> None:
    """Test all 1024 fractions."""
    fractions = np.arange(1024)
    error = power(fractions) / 2.0 ** (15 + fractions / 1024) - 1
    assert -0.0015 < error.min() and error.max() < 0.0033
    assert power(np.array([0]))[0] == 1 << 15
    assert np.all(np.diff(power(fractions)) <= 41)
    assert (1 << 16) - power(np.array([1023]))[0] == 41


def plain_softmax(row: list[int], p: SoftmaxParameters) -> list[int]:
    """Compute the specified recurrence for one row with Python integers."""
    maximum, total, parts = -32, 0, []
    for start in range(0, len(row), p.lanes):
        part = row[start : start + p.lanes]
        top = max(-(-score // 1024) for score in part)
        before, maximum = maximum, max(maximum, top)
        powers = []
        for score in part:
            quarter, offset = divmod(score % 1024, 256)
            mantissa = 32768 + 256 * sum((24, 29, 34, 41)[:quarter])
            mantissa += (24, 29, 34, 41)[quarter] * offset
            powers.append(mantissa >> maximum - score // 1024)
        total = (total >> maximum - before) + sum(powers)
        parts.append((maximum, powers))
    exponent = total.bit_length() - 1
    divisor = total << 15 >> exponent
    seed = round(256 / (1 + ((divisor - 32768 >> 9) + 0.5) / 64))
    mantissa = seed * 128 + (seed * ((256 << 15) - divisor * seed >> 8) >> 8) - 1
    results = []
    for top, powers in parts:
        factor = ((mantissa << 5 >> exponent - 14 + maximum - top) + 1) >> 1
        results += [(value * factor + (1 << 16)) >> 17 for value in powers]
    return results


@given(st.lists(scores, min_size=1, max_size=48))
def test_model_is_the_recurrence(row: list[int]) -> None:
    padded = np.zeros((1, -(-len(row) // 4) * 4), np.int64)
    padded[0, : len(row)] = row
    keep = np.arange(padded.shape[1])[np.newaxis] < len(row)
    got = softmax(padded, keep, SMALL)[0]
    assert list(got[: len(row)]) == plain_softmax(row, SMALL)
    assert not got[len(row) :].any()


def test_single_scores_give_the_largest_probability() -> None:
    """Test all 65,536 rows of length 1: a rounded probability never reaches 1."""
    p = SoftmaxParameters(lanes=1, scores=2)
    got = softmax(np.arange(-(1 << 15), 1 << 15)[:, np.newaxis], np.ones((1 << 16, 1), bool), p)
    assert got.max() <= 65535
    assert got.min() >= 65536 * (1 - 2.1e-4)


def test_half_of_a_probability_has_15_bits() -> None:
    """Test all sums below 2, with the largest power that each can contain: at most 65534.

    A power is at most 1 and part of its sum. Powers of earlier, smaller maxima are at most half of
    a sum, and so is 1 for sums of at least 2. The rounding loss is less than that.
    """
    total = np.arange(1 << 14, 1 << 16)
    power = np.minimum(total, 1 << 15)
    mantissa, exponent = reciprocal(total)
    factor = ((mantissa << 5 >> exponent - 14) + 1) >> 1
    probability = (power * factor + (1 << 16)) >> 17
    assert probability.max() == 65534
    assert (probability.max() + 1) >> 1 < 1 << 15


@pytest.mark.parametrize("preset", ["tiny", "smollm2", "paper"])
def test_extremes_are_within_the_bound(preset: str) -> None:
    p = entry_named("softmax").parameters(preset)
    for row in extreme_rows(p):
        width = -(-len(row) // p.lanes) * p.lanes
        keep = (np.arange(width) < len(row))[np.newaxis]
        padded = np.resize(row, width)[np.newaxis]
        got, exact = softmax(padded, keep, p) / (1 << 16), exact_softmax(padded, keep)
        assert np.all(np.abs(got - exact) <= error_bound(exact, keep))


def test_the_bound_of_random_rows() -> None:
    """Test flat to peaked distributions of 2048 scores."""
    rng = np.random.default_rng(3)
    p = SoftmaxParameters(lanes=8)
    spreads = 2.0 ** rng.uniform(2, 14, (200, 1))
    rows = np.clip(np.rint(rng.normal(0, spreads, (200, 2048))), -32768, 32767).astype(np.int64)
    keep = np.ones(rows.shape, bool)
    exact = exact_softmax(rows, keep)
    assert np.all(np.abs(softmax(rows, keep, p) / 65536 - exact) <= error_bound(exact, keep))


def test_real_attention_is_near_float64() -> None:
    """Compare all queries of three layers of SmolLM2 with the model's own probabilities."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = entry_named("softmax").parameters("smollm2")
    worst, means = 0.0, []
    for layer in trace.layers:
        for head in range(trace.heads):
            attention = trace.attention_trace(layer, head)
            keep = np.isfinite(attention.scores)
            raw = quantise_scores(np.where(keep, attention.scores, 0))
            got, exact = softmax(raw, keep, p) / 65536, exact_softmax(raw, keep)
            assert np.all(np.abs(got - exact) <= error_bound(exact, keep))
            error = np.abs(got - attention.probabilities)[keep]
            worst, means = max(worst, error.max()), [*means, error.mean()]
    assert worst < 0.0125
    assert np.mean(means) < 1.1e-5
