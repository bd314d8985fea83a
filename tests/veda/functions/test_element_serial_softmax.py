"""Element-serial softmax: the model against float64 and plain fractions; its parameters."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.llm import open_trace
from golden.veda.functions.element_serial_softmax import (
    error_bound,
    exact_softmax,
    reciprocal,
    rescaled,
    softmax,
)
from hdl.catalog import entry_named
from hdl.veda.functions.element_serial_softmax import ElementSerialSoftmaxParameters
from testbenches.veda.functions.tb_element_serial_softmax import codes, edge_heads, undefined_heads

PAPER = ElementSerialSoftmaxParameters()


def within_bound(head: np.ndarray, p: ElementSerialSoftmaxParameters) -> bool:
    got = softmax(head, p).view(np.float16).astype(np.float64)
    return bool(np.all(np.abs(got - exact_softmax(head)) <= error_bound(head)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 1}, "capacity must be an integer from 2 to 16384, not 1"),
        ({"tile": 12}, "tile must be a power of two between 2 and 64, not 12"),
        ({"tile": 1}, "tile must be a power of two between 2 and 64, not 1"),
        ({"heads": 0}, "heads must be an integer from 1 to 64, not 0"),
        ({"exp_stages": 8}, "exp_stages must be an integer from 1 to 7, not 8"),
        ({"subtract_stages": 0}, "subtract_stages must be an integer from 1 to 4, not 0"),
    ],
)
def test_illegal_parameters_are_worded(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementSerialSoftmaxParameters(**change)


@given(st.integers(1 << 24, 1 << 36), st.integers(0, 1 << 24))
def test_rescaling_loses_less_than_one_unit_a_digit(total: int, factor: int) -> None:
    exact = Fraction(total * factor, 1 << 24)
    assert exact - factor.bit_count() <= int(rescaled(total, factor)) <= exact


@given(st.integers(1 << 24, 1 << 36))
def test_reciprocal_is_near(total: int) -> None:
    mantissa, exponent = map(int, reciprocal(total))
    assert 1 << 13 <= mantissa <= 1 << 14
    product = Fraction(mantissa * total, 1 << 38 + exponent)
    assert abs(product - 1) < Fraction(1, 1 << 11)


def test_equal_scores_give_the_nearest_number_to_one_over_n() -> None:
    """For every number of scores: all exponentials are 1, so the sum is n."""
    for count in range(1, 4097):
        mantissa, exponent = reciprocal(count << 24)
        value = np.float16(mantissa * 2.0 ** (-14 - exponent))
        assert value == np.float16(1 / count)
    for count in (1, 3, 32, 33, 100, 4095):
        head = np.full(count, 0xC123, np.uint16)
        assert np.all(softmax(head, PAPER).view(np.float16) == np.float16(1 / count))


@pytest.mark.parametrize("preset", ["tiny", "smollm2", "paper"])
def test_edges_are_within_the_bound(preset: str) -> None:
    p = entry_named("element_serial_softmax").parameters(preset)
    for head in edge_heads(p):
        assert within_bound(head, p)


def test_random_heads_are_within_the_bound() -> None:
    """Spreads from flat to peaked, falling and rising, up to 4096 scores."""
    rng = np.random.default_rng(5)
    for index in range(120):
        length = int(2 ** rng.uniform(0, 12))
        scores = rng.normal(0, 2.0 ** rng.uniform(-8, 6), length)
        head = codes(np.sort(scores) if index % 3 == 0 else scores)
        assert within_bound(head, PAPER)


def test_heads_without_a_softmax_give_nan_only() -> None:
    for heads in undefined_heads(PAPER).values():
        for head in heads:
            assert set(softmax(head, PAPER)) == {0x7E00}


def test_masked_scores_take_no_part() -> None:
    scores = codes(np.random.default_rng(2).normal(0, 2, 70))
    masked = np.full(70 + 64, 0xFC00, np.uint16)
    masked[64:] = scores
    got = softmax(masked, PAPER)
    assert not got[:64].any()
    values = got[64:].view(np.float16).astype(np.float64)
    assert np.all(np.abs(values - exact_softmax(scores)) <= error_bound(scores))


def test_real_attention_is_near_float64() -> None:
    """Queries of three layers of SmolLM2 against the probabilities in float64."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    worst, worst_sum = 0.0, 0.0
    for layer in trace.layers:
        for head in range(0, trace.heads, 2):
            scores = trace.attention_trace(layer, head).scores
            for length in (1, 31, 32, 33, 128, 512, 640):
                row = codes(scores[length - 1, :length])
                got = softmax(row, PAPER).view(np.float16).astype(np.float64)
                error = np.abs(got - exact_softmax(row))
                assert np.all(error <= error_bound(row))
                worst, worst_sum = max(worst, error.max()), max(worst_sum, abs(got.sum() - 1))
    assert worst < 1e-3
    assert worst_sum < 1e-3
