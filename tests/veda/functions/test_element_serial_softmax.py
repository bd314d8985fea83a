"""Test the model of the element-serial softmax against float64 and fractions; its parameters."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.arith.float_exp2 import exp2
from golden.llm import open_trace
from golden.veda.functions.element_serial_softmax import (
    FAR,
    LOG2_E,
    distances,
    error_bound,
    exact_softmax,
    exponential_sum,
    reciprocal,
    softmax,
)
from golden.veda.voting.voting_engine import exact_votes
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
        ({"scores": 1}, "scores must be an integer from 2 to 16384, not 1"),
        ({"heads": 0}, "heads must be an integer from 1 to 64, not 0"),
        ({"exp_stages": 4}, "exp_stages must be an integer from 1 to 3, not 4"),
        ({"multiply_stages": 0}, "multiply_stages must be an integer from 1 to 4, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementSerialSoftmaxParameters(**change)


@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(-90, 90)), min_size=1, max_size=60))
def test_sum_truncates_less_than_one_unit_per_term_and_rise(terms: list[tuple[int, int]]) -> None:
    """Test against exact fractions, with powers that rise and fall by any distance."""
    mantissa, whole = (np.array(part, np.int64) for part in zip(*terms, strict=True))
    distance, rises = distances(whole, np.full(len(whole), True))
    got = int(exponential_sum(mantissa, distance, rises))
    top = int(whole.max())
    exact = sum(Fraction(1024 + m, 1024) * Fraction(2) ** (w - top) for m, w in terms) * 2**24
    # A distance of 31 or more reduces a term to less than a 2**7th of a unit.
    assert exact - len(terms) - int(rises.sum()) <= got <= exact


@given(st.lists(st.integers(-70000, 70000), min_size=1, max_size=50))
def test_limited_distances_are_exact_below_the_limit(powers: list[int]) -> None:
    """Rises limited to 31 add up to the true distance, or to at least 31 if it is larger."""
    whole = np.array(powers, np.int64)
    distance, rises = distances(whole, np.full(len(whole), True))
    risen = np.cumsum(np.where(rises, distance, 0))
    away = risen[-1] - risen + np.where(rises, 0, distance)
    assert np.array_equal(np.minimum(away, FAR), np.minimum(whole.max() - whole, FAR))
    assert risen[-1] <= min(FAR * len(powers), FAR + np.ptp(whole))


@given(st.integers(1 << 24, 1 << 36))
def test_reciprocal_is_near(total: int) -> None:
    mantissa, exponent = map(int, reciprocal(total))
    assert 1 << 13 <= mantissa <= 1 << 14
    product = Fraction(mantissa * total, 1 << 38 + exponent)
    assert abs(product - 1) < Fraction(1, 1 << 11)


def test_equal_scores_give_one_over_n() -> None:
    """Test a bound of 0.7 ulp for any mantissa of the score; a single score gives exactly 1."""
    rng, worst = np.random.default_rng(3), 0.0
    for count in (*range(1, 70), *range(97, 4097, 97), 4095, 4096):
        head = np.full(count, rng.integers(0x3C00, 0x5000), np.uint16)
        got = softmax(head, PAPER).view(np.float16).astype(np.float64)
        assert np.all(got == got[0])
        ulp = float(np.spacing(np.float16(1 / count)))
        worst = max(worst, abs(got[0] - 1 / count) / ulp)
        assert count > 1 or got[0] == 1
    assert worst <= 0.7


@pytest.mark.parametrize("preset", ["tiny", "smollm2", "paper"])
def test_edges_are_within_the_bound(preset: str) -> None:
    p = entry_named("element_serial_softmax").parameters(preset)
    for head in edge_heads(p):
        assert within_bound(head, p)


def test_every_distance_and_rise_occurs() -> None:
    """The corner cases contain each of them, as measured by the model."""
    seen: dict[bool, set[int]] = {False: set(), True: set()}
    for head in edge_heads(PAPER):
        numbers = np.isfinite(head.view(np.float16))
        distance, rises = distances(exp2(head)[0], numbers)
        for rise in seen:
            seen[rise] |= set(distance[numbers & (rises == rise)].tolist())
    assert seen == {False: set(range(FAR + 1)), True: set(range(1, FAR + 1))}


def test_random_heads_are_within_the_bound() -> None:
    """Test spreads from flat to peaked, falling and rising, up to 4096 scores."""
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


def test_masked_scores_have_probability_zero() -> None:
    scores = codes(np.random.default_rng(2).normal(0, 2, 70))
    masked = np.full(70 + 64, 0xFC00, np.uint16)
    masked[64:] = scores
    got = softmax(masked, PAPER)
    assert not got[:64].any()
    values = got[64:].view(np.float16).astype(np.float64)
    assert np.all(np.abs(values - exact_softmax(scores)) <= error_bound(scores))


def test_real_attention_is_near_float64() -> None:
    """Compare heads of three layers of SmolLM2 with the natural softmax in float64."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    worst, worst_sum, votes = 0.0, 0.0, []
    engine = exact_votes()
    for layer in trace.layers:
        for head in range(0, trace.heads, 2):
            scores = trace.attention_trace(layer, head).scores
            for length in (1, 31, 32, 33, 128, 512, 640):
                natural = scores[length - 1, :length]
                truth = np.exp(natural - natural.max())
                truth /= truth.sum()
                row = codes(natural * LOG2_E)
                got = softmax(row, PAPER).view(np.float16).astype(np.float64)
                assert np.all(np.abs(got - exact_softmax(row)) <= error_bound(row))
                worst, worst_sum = (
                    max(worst, np.abs(got - truth).max()),
                    max(worst_sum, abs(got.sum() - 1)),
                )
                votes.append(np.mean(engine(got[np.newaxis]) == engine(truth[np.newaxis])))
    assert worst < 4e-3
    assert worst_sum < 1e-3
    # The votes hardly depend on the difference.
    assert np.mean(votes) > 0.995
