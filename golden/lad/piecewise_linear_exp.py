"""Piecewise linear exponential of LAD: float64 from Section III-A, and the FP16 lookup."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hdl.lad.exp_intervals import Fit, IntervalParameters

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NODES = 40
"""Points of the quadrature; far fewer would make the integrals exact in float64."""


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
        """Return the interval of each x: the tail for a NaN, the top one for x above 0."""
        # As MD's comparators: the number of bounds strictly below x, less one.
        place = np.searchsorted(self.lower, x, side="left") - 1
        return np.where(np.isnan(x), 0, np.maximum(place, 0))

    def __call__(self, x: Floats) -> Floats:
        """Return the approximation of e^x in float64."""
        number = self.intervals(x)
        # In the tail both coefficients are 0, also for minus infinity.
        inside = np.where(number > 0, x, 0.0)
        return self.slopes[number] * inside + self.intercepts[number]


@cache
def fitted_lines(p: IntervalParameters) -> Lines:
    """Return the lines in float64: least squares over each interval, by quadrature."""
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
    """Return the lines with coefficients rounded to FP16, as in the hardware's tables."""
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
    # In powers of x - lower, so that the constant is the line's value at the lower end.
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
    """Result of the lookup for each score, codes as integers.

    Members
    -------
    interval : array [...]
        Index of the score's interval.
    active : array [...]
        1 if it is not the mode.
    slope, intercept : array [...]
        FP16 codes of a and b of the interval.
    """

    interval: Integers
    active: Integers
    slope: Integers
    intercept: Integers


def look_up(scores: Integers, modes: Integers, p: IntervalParameters) -> Found:
    """Return the intervals, their coefficients, and a flag for active positions.

    Parameters
    ----------
    scores : numpy.ndarray
        FP16 codes of scores less the maximum, any shape.
    modes : numpy.ndarray
        Mode of each position.
    p : IntervalParameters
        Partition and fit.
    """
    lines = rounded_lines(p)
    x = np.asarray(scores).astype(np.uint16).view(np.float16).astype(np.float64)
    upper = np.append(lines.lower[1:], np.inf)
    # APID compares with the bounds of the mode; MD computes the interval.
    inside = (x > lines.lower[modes]) & (x <= upper[modes])
    # Minus infinity and NaN are in the tail, although no comparison is true for them.
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
