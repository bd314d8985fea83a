"""The piecewise linear exponential: its tables, the paper's example, the softmax's error."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Signal

from golden.lad.piecewise_linear_exp import (
    fitted_lines,
    look_up,
    rounded_lines,
    softmax_error,
)
from hdl.arith.float_format import BINARY16
from hdl.lad.exp_intervals import Fit, IntervalParameters, lines
from hdl.lad.interval_table import EIGHT, FIVE
from hdl.lad.piecewise_linear_exp import IntervalLookup, PiecewiseLinearExpParameters
from testbenches.formal import Assert, prove

EVERY = [IntervalParameters(intervals=i, fit=fit) for i in range(3, 17) for fit in Fit] + [
    IntervalParameters(intervals=i, tail=tail) for i in (5, 8, 12, 16) for tail in (6, 14, 16)
]
CODES = np.arange(1 << 16)


def fp16(*values: float) -> np.ndarray:
    """Return the codes of values in FP16."""
    return np.array(values, np.float16).view(np.uint16).astype(np.int64)


@pytest.mark.parametrize("intervals", [2, 17, 4.5])
def test_illegal_parameters_are_rejected(intervals: Any) -> None:
    with pytest.raises(ValueError, match="intervals must be an integer from 3 to 16"):
        IntervalParameters(intervals=intervals)


@pytest.mark.parametrize("tail", [1, 5])
def test_tail_without_room_for_intervals_is_rejected(tail: int) -> None:
    with pytest.raises(ValueError, match=f"tail must be 0 or at least 6, not {tail}"):
        IntervalParameters(intervals=12, tail=tail)


def test_tail_selects_the_lowest_bound() -> None:
    assert IntervalParameters(intervals=12).lower_bounds[0] == -10
    assert IntervalParameters(intervals=12, tail=14).lower_bounds[:2] == (-14, -10.25)
    assert IntervalParameters(intervals=5, tail=8).lower_bounds[0] == -8


@pytest.mark.parametrize("p", EVERY, ids=str)
def test_closed_form_equals_quadrature(p: IntervalParameters) -> None:
    exact = np.array(lines(p))
    fitted = fitted_lines(p)
    assert np.allclose(exact[:, 0], fitted.slopes, rtol=1e-9, atol=1e-15)
    assert np.allclose(exact[:, 1], fitted.intercepts, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("p", EVERY, ids=str)
def test_codes_of_the_tables(p: IntervalParameters) -> None:
    rounded = rounded_lines(p)
    assert p.slope_codes == tuple(fp16(*rounded.slopes))
    assert p.intercept_codes == tuple(fp16(*rounded.intercepts))
    assert np.array_equal(BINARY16.decode(np.array(p.bound_codes)), p.lower_bounds)


@pytest.mark.parametrize("p", EVERY, ids=str)
def test_intervals_narrow_towards_zero(p: IntervalParameters) -> None:
    """Section III-A; equal widths are a result of rounding the bounds."""
    bounds = np.array([*p.lower_bounds, 0.0])
    assert len(bounds) == p.intervals
    assert (np.diff(bounds) > 0).all()
    assert (np.diff(np.diff(bounds)) <= 1 / 4).all()
    slopes = rounded_lines(p).slopes
    assert slopes[0] == 0
    assert (np.diff(slopes) > 0).all()


def test_published_partition() -> None:
    """Figure 2 (a)."""
    assert IntervalParameters(intervals=5).lower_bounds == (-10, -6, -3, -1)


def test_the_modules_tables_are_these() -> None:
    for table in (FIVE, EIGHT):
        p = IntervalParameters(intervals=table.intervals)
        assert table.lowers == p.bound_codes
        assert (table.a, table.b) == (p.slope_codes, p.intercept_codes)


def test_figure_3() -> None:
    """Scores -5.34 in interval 2 at mode 1: active; -7.95 in interval 1 at mode 0: active."""
    p = IntervalParameters(intervals=5)
    found = look_up(fp16(-5.34, -7.95), np.array([1, 0]), p)
    assert found.interval.tolist() == [2, 1]
    assert found.active.tolist() == [1, 1]
    still = look_up(fp16(-5.34, -7.95), np.array([2, 1]), p)
    assert still.active.tolist() == [0, 0]


def test_a_bound_belongs_to_the_interval_below_it() -> None:
    p = IntervalParameters(intervals=5)
    scores = fp16(-10, -6, -3, -1, 0, 0.5, np.inf, -np.inf, np.nan)
    assert look_up(scores, np.zeros(9, np.int64), p).interval.tolist() == [
        *(0, 1, 2, 3),
        *(4, 4, 4),
        *(0, 0),
    ]


@pytest.mark.parametrize("p", EVERY[::5], ids=str)
def test_both_decisions_agree_on_every_score(p: IntervalParameters) -> None:
    """APID's comparison with two bounds agrees with MD's search: active means another interval."""
    for mode in range(p.intervals):
        found = look_up(CODES, np.full(len(CODES), mode), p)
        assert np.array_equal(found.active, found.interval != mode)


def test_constraint_holds_at_the_lower_ends() -> None:
    """Exact in float64; in FP16 the error is a few units in the last place of the intercept."""
    for p in EVERY:
        fitted = fitted_lines(p)
        lowest = (fitted.slopes * np.append(0, fitted.lower[1:]) + fitted.intercepts)[1:]
        if p.fit is Fit.NONNEG:
            assert lowest.min() > -1e-12
        elif p.intervals == 5 and not p.tail:
            assert lowest[0] == pytest.approx(-0.00037, abs=1e-5)
            assert lowest[1] == pytest.approx(-0.00496, abs=1e-5)


def test_a_denominator_below_zero() -> None:
    """4095 scores of -5.9 and one of 0: without the constraint their sum is negative."""
    scores = np.array([0.0] + [-5.9] * 4095)
    sums = [rounded_lines(IntervalParameters(intervals=5, fit=fit))(scores).sum() for fit in Fit]
    assert sums[0] == pytest.approx(-13.7, abs=0.3)
    assert sums[1] > 0


@pytest.mark.parametrize(
    ("intervals", "fit", "bounds"),
    [
        (5, Fit.LSQ, (3e-6, 5e-7, 1e-7)),
        (5, Fit.NONNEG, (7e-6, 2e-6, 3e-7)),
        (8, Fit.LSQ, (5e-7, 7e-8, 1e-8)),
        (12, Fit.LSQ, (1e-7, 2e-8, 2e-9)),
        (16, Fit.LSQ, (2e-8, 3e-9, 4e-10)),
    ],
)
def test_softmax_error(intervals: int, fit: Fit, bounds: tuple[float, ...]) -> None:
    """Normal scores with one sink, 256, 1024 and 4096 of them: 1e-6 holds for long texts."""
    approximation = rounded_lines(IntervalParameters(intervals=intervals, fit=fit))
    rng = np.random.default_rng(1)
    for length, bound in zip((256, 1024, 4096), bounds, strict=True):
        scores = rng.normal(0, 2, (100, length))
        scores[:, 0] += 6
        error = softmax_error(scores, approximation).mean()
        assert bound / 5 < error < bound


class _Decisions(Elaboratable):
    """Assertions about the lookup, for every score and mode."""

    def __init__(self, p: IntervalParameters) -> None:
        self.p = p
        self.score, self.mode = Signal(16), Signal(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.lookup = lookup = IntervalLookup(parameters=self.p)
        m.submodules.next_lookup = above = IntervalLookup(parameters=self.p)
        falls = self.score[-1] & (self.score[:-1] <= 0x7C00) & self.score[:-1].any()
        m.d.comb += [
            lookup.score.eq(self.score),
            lookup.mode.eq(self.mode),
            # The next number towards zero.
            above.score.eq(self.score - 1),
            above.mode.eq(self.mode),
            Assert(lookup.interval < self.p.intervals),
            Assert(
                (self.mode >= self.p.intervals) | (lookup.active == (lookup.interval != self.mode))
            ),
            Assert(~falls | (above.interval >= lookup.interval)),
        ]
        return m


@pytest.mark.parametrize("intervals", [3, 8, 16])
def test_active_means_another_interval_proven(intervals: int) -> None:
    """For every score and mode; and the interval never decreases as a negative score increases."""
    design = _Decisions(IntervalParameters(intervals=intervals))
    prove(design, inputs=[design.score, design.mode], depth=1, induction=False)


@pytest.mark.parametrize("lanes", [0, 17])
def test_illegal_lanes_are_rejected(lanes: int) -> None:
    with pytest.raises(ValueError, match="lanes must be an integer from 1 to 16"):
        PiecewiseLinearExpParameters(lanes=lanes)
