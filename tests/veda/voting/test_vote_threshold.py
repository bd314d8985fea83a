"""Test the threshold unit: its model against fractions and float64, its hardware against that."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator
from hypothesis import given
from hypothesis import strategies as st

from golden.veda.voting.vote_threshold import (
    PAPER,
    Outcome,
    ThresholdCoefficients,
    rounded_quotient,
    sum_of_squares,
    vote_threshold,
    votes,
)
from golden.veda.voting.voting_engine import to_codes
from golden.veda.voting.voting_policy import threshold
from hdl.arith.float_format import BINARY16
from hdl.target import Target, writing_for
from hdl.veda.voting.threshold_parameters import VoteThresholdParameters
from hdl.veda.voting.vote_threshold import VoteThreshold


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": 3}, "slots must be an integer from 4 to 4096, not 3"),
        ({"slots": 4097}, "slots must be an integer from 4 to 4096, not 4097"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VoteThresholdParameters(**change)


@given(st.integers(0, (1 << 26) - 1), st.integers(1, 4096))
def test_quotient_is_rounded_once(margin: int, length: int) -> None:
    margin = min(margin, 3 << 24)
    value = Fraction(margin, length << 25)
    assert rounded_quotient(margin, length) == BINARY16.from_fraction(value)


def test_sum_of_squares_truncates_and_saturates() -> None:
    assert sum_of_squares(np.array([0x3C00])) == 1 << 40
    assert sum_of_squares(np.array([0x3C00, 0x3C00])) == (2 << 40) - 1
    # 2**-24 squared is less than the unit, 2**-20 squared is one.
    assert sum_of_squares(np.array([0x0001, 0x0010])) == 1


@given(st.integers(0, 2**32 - 1), st.integers(2, 2048), st.floats(0.1, 4.0))
def test_threshold_is_near_that_of_real_numbers(seed: int, length: int, scale: float) -> None:
    """Test the unit's own bound on the same codes: the sum need not be exactly one."""
    powers = np.exp(np.random.default_rng(seed).normal(scale=scale, size=length))
    codes = to_codes(powers / powers.sum())
    exact = BINARY16.decode(codes)
    outcome = vote_threshold(codes, PAPER)
    excess = max(0.0, length * float(np.sum(exact**2)) - 1)
    real = (1 - 819 / 4096 * np.sqrt(excess)) / length
    # Truncation of the squares, through the root; last bits of the root and the margin; FP16.
    lost = length * length * 2.0**-40 + 2.0**-28
    error = 0.2 * (np.sqrt(excess + lost) - np.sqrt(max(excess - lost, 0.0)) + 2.0**-14) + 2.0**-25
    if abs(real) * length > error:
        assert outcome.fallback == (real < 0)
    if not outcome.fallback and real > 0:
        got = float(BINARY16.decode(np.array(outcome.threshold)))
        assert abs(got - real) <= error / length + max(real * 2.0**-11, 2.0**-25)


def test_threshold_is_near_the_algorithms() -> None:
    probabilities = np.random.default_rng(2).dirichlet(np.ones(512))
    outcome = vote_threshold(to_codes(probabilities), PAPER)
    got = float(BINARY16.decode(np.array(outcome.threshold)))
    assert got == pytest.approx(threshold(probabilities), rel=2e-3)


@pytest.mark.parametrize("code", [0x7E00, 0x7C00, 0x4000])
def test_a_head_without_a_softmax_casts_no_vote(code: int) -> None:
    """No vote is cast even against the sink in slot 0: the lower bits of 0x7E00 are 1.5."""
    head = to_codes(np.array([0.9, 0.05, 0.03, 0.02]))
    head[2] = code
    assert not votes(head, vote_threshold(head, PAPER)).any()
    assert not votes(np.full(64, code), vote_threshold(np.full(64, code), PAPER)).any()


def test_without_fallback_a_negative_threshold_is_zero() -> None:
    """A sink makes the threshold negative: the head votes once with the fallback, else never."""
    head = to_codes(np.array([0.9, 0.05, 0.03, 0.02]))
    sharp = ThresholdCoefficients(deviation=4095)
    assert votes(head, vote_threshold(head, sharp)).tolist() == [False, False, False, True]
    without = vote_threshold(head, sharp, fallback=False)
    assert (without.threshold, without.fallback) == (0, False)
    assert not votes(head, without).any()


def test_votes() -> None:
    codes = np.array([5, 3, 3, 9])
    assert votes(codes, Outcome(5, False, 1)).tolist() == [False, True, True, False]
    assert votes(codes, Outcome(0, True, 1)).tolist() == [False, True, False, False]


def heads_for(p: VoteThresholdParameters) -> list[np.ndarray]:
    """Return heads of all lengths up to 120, every fourth out of range, some with ties, sinks."""
    rng = np.random.default_rng(p.slots)
    longest = min(p.slots, 120)
    heads = [np.array([0x3C00]), np.zeros(2, np.int64), np.full(longest, 0x3FFF)]
    # Not distributions: a softmax of NaN, one NaN at either end, infinity, 2.
    heads += [np.full(3, 0x7E00), np.array([0x7E00, 0, 1]), np.array([5, 0, 0x7E00])]
    heads += [np.array([0x3400, 0x7C00, 0x3400]), np.array([0x4000, 0x3400])]
    for number in range(24):
        length = int(rng.integers(1, longest + 1))
        if number % 4 == 0:
            heads.append(rng.integers(0, 0x4000, length))
        else:
            weights = rng.integers(1, 5, length) * rng.exponential() ** (number % 4 - 1)
            weights[rng.integers(length)] *= rng.choice([1.0, 300.0])
            heads.append(to_codes(weights / weights.sum()))
    return heads


@pytest.mark.parametrize(
    ("slots", "take", "fallback"),
    [
        *((slots, take, True) for slots in (4, 8, 4096) for take in (1.0, 0.02)),
        (4, 0.02, False),
        (4096, 1.0, False),
    ],
)
def test_hardware_equals_its_model(slots: int, take: float, fallback: bool) -> None:
    p = VoteThresholdParameters(slots=slots, fallback=fallback)
    coefficients = ThresholdCoefficients(deviation=2000)
    unit = VoteThreshold(parameters=p)
    heads = heads_for(p)
    random = np.random.default_rng(1)
    got: list[tuple[int, int, int]] = []
    cycle, taken, seen = 0, [], []

    async def source(context: Any) -> None:
        port = unit.probabilities
        context.set(unit.coefficients.mean, coefficients.mean)
        context.set(unit.coefficients.deviation, coefficients.deviation)
        for head in heads:
            for index, code in enumerate(head):
                # The sign is ignored.
                context.set(Value.cast(port.payload.value), int(code) | 0x8000 * (index % 2))
                context.set(port.payload.last, index == len(head) - 1)
                context.set(port.valid, 1)
                await context.tick().until(port.ready)
            taken.append(cycle)
        context.set(port.valid, 0)

    async def sink(context: Any) -> None:
        nonlocal cycle
        port = unit.outcomes
        while len(got) < len(heads):
            context.set(port.ready, random.random() < take)
            _, _, valid, ready, payload = await context.tick().sample(
                port.valid, port.ready, port.payload
            )
            cycle += 1
            if valid and ready:
                # The lowest element matters only if the head takes the fallback.
                only = payload.fallback if fallback else 0
                got.append((payload.threshold, only, payload.lowest if only else 0))
                seen.append(cycle)

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(source)
    simulator.add_testbench(sink)
    simulator.run()
    outcomes = [vote_threshold(head, coefficients, fallback=fallback) for head in heads]
    assert got == [(o.threshold, int(o.fallback), o.lowest * o.fallback) for o in outcomes]
    if slots > 4:
        assert {o.fallback for o in outcomes} == {False, fallback}
        negative = [vote_threshold(head, coefficients).fallback for head in heads]
        assert any(negative) and not all(negative)
    if take == 1.0:
        assert abs(seen[0] - taken[0] - p.latency) <= 1
