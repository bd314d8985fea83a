"""The piecewise linear exponential of LAD: float64 from Section III-A, and the FP16 lookup."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hdl.lad.exp_intervals import Fit, IntervalParameters

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NODES = 40
"""Points of the quadrature; the integrals are exact in float64 with far fewer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lines:
    """A piecewise linear function over the intervals (lower, upper].

    Members
    -------
    lower : array [I]
        Lower bounds, minus infinity first.
    slopes, intercepts : array [I]
        a and b of each interval.
    """

    lower: Floats
    slopes: Floats
    intercepts: Floats

    def intervals(self, x: Floats) -> Integers:
        """Return the interval of each x; a NaN's is the tail, an x above 0 is in the top one."""
        # As MD's comparators do: one less than the number of bounds that are strictly below x.
        place = np.searchsorted(self.lower, x, side="left") - 1
        return np.where(np.isnan(x), 0, np.maximum(place, 0))

    def __call__(self, x: Floats) -> Floats:
        """Return the approximation of e^x in float64."""
        number = self.intervals(x)
        # In the tail both coefficients are 0, also where x is minus infinity.
        inside = np.where(number > 0, x, 0.0)
        return self.slopes[number] * inside + self.intercepts[number]


@cache
def fitted_lines(p: IntervalParameters) -> Lines:
    """Return the lines in float64: least squares over each interval by quadrature."""
    slopes, intercepts = [0.0], [0.0]
    for lower, upper in pairwise((*p.lower_bounds, 0.0)):
        slope, intercept = _fit(lower, upper, p.fit)
        slopes.append(slope)
        intercepts.append(intercept)
    return Lines(
        lower=np.array([-np.inf, *p.lower_bounds]),
        slopes=np.array(slopes),
        intercepts=np.array(intercepts),
    )


@cache
def rounded_lines(p: IntervalParameters) -> Lines:
    """Return the lines with coefficients rounded to FP16, as the hardware's tables hold them."""
    exact = fitted_lines(p)
    return Lines(
        lower=exact.lower.astype(np.float16).astype(np.float64),
        slopes=exact.slopes.astype(np.float16).astype(np.float64),
        intercepts=exact.intercepts.astype(np.float16).astype(np.float64),
    )


def _fit(lower: float, upper: float, fit: Fit) -> tuple[float, float]:
    """Solve the weighted least squares of one interval at the quadrature's points."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    x = lower + (upper - lower) * (points + 1) / 2
    root = np.sqrt(weights)
    # In powers of x - lower: then the constant is the line's value at the lower end.
    (slope, start), *_ = np.linalg.lstsq(
        np.stack([(x - lower) * root, root], axis=1), np.exp(x) * root, rcond=None
    )
    if fit is Fit.NONNEG and start < 0:
        weighted = weights * (x - lower)
        slope, start = (weighted @ np.exp(x)) / (weighted @ (x - lower)), 0.0
    return float(slope), float(start - slope * lower)


def softmax_error(scores: Floats, lines: Lines) -> Floats:
    """Return the mean squared error of a piecewise linear softmax [...] of scores [..., n]."""
    centred = scores - scores.max(-1, keepdims=True)
    exact = np.exp(centred)
    linear = lines(centred)
    exact /= exact.sum(-1, keepdims=True)
    linear /= linear.sum(-1, keepdims=True)
    return ((linear - exact) ** 2).mean(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What the lookup gives for each score, codes as integers.

    Members
    -------
    interval : array [...]
        The interval that the score is in.
    active : array [...]
        1 where that is not the mode interval.
    slope, intercept : array [...]
        FP16 codes of the interval's a and b.
    """

    interval: Integers
    active: Integers
    slope: Integers
    intercept: Integers


def look_up(scores: Integers, modes: Integers, p: IntervalParameters) -> Found:
    """Return the intervals, their coefficients, and which scores have left their mode interval.

    Parameters
    ----------
    scores : numpy.ndarray
        FP16 codes of scores less the maximum, any shape.
    modes : numpy.ndarray
        For each the number of its mode interval.
    p : IntervalParameters
        The intervals.
    """
    lines = rounded_lines(p)
    x = np.asarray(scores).astype(np.uint16).view(np.float16).astype(np.float64)
    upper = np.append(lines.lower[1:], np.inf)
    # APID compares with the bounds of the mode interval, MD looks for the interval.
    inside = (x > lines.lower[modes]) & (x <= upper[modes])
    # Minus infinity and NaN are in the tail, although no comparison says so.
    tail = np.isneginf(x) | np.isnan(x)
    interval = lines.intervals(x)
    return Found(
        interval=interval,
        active=np.where(tail, modes != 0, ~inside).astype(np.int64),
        slope=_codes(lines.slopes)[interval],
        intercept=_codes(lines.intercepts)[interval],
    )


def _codes(values: Floats) -> Integers:
    """Return the FP16 codes of values that are exact in FP16."""
    return values.astype(np.float16).view(np.uint16).astype(np.int64)
