"""The intervals of the piecewise linear exponential and their lines, as FP16 tables."""

from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

import mpmath

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object

MODE_BITS = 4
"""Bits of an interval's number."""

PUBLISHED = {5: (-10, -6, -3, -1), 8: (-12, -9, -6.5, -4.5, -3, -1.75, -0.75)}
"""Where the intervals above the tail begin: I = 5 as in the paper's Figure 2, I = 8 chosen here."""

WIDENING = 6
"""All other partitions have bounds at equal distances of exp(x / WIDENING)."""

GRID = 4
"""Those bounds are multiples of 1 / GRID."""


class Fit(Enum):
    """How an interval's line is fitted to exp, by least squares with all x weighted alike."""

    LSQ = 0
    """Without a constraint: at an interval's lower end a line may be below 0."""

    NONNEG = 1
    """Under the constraint that no line is below 0 within its interval."""


@parameter_object
class IntervalParameters(Parameters):
    """Which piecewise linear exponential.

    Parameters
    ----------
    intervals : int
        I, the tail from minus infinity included.
    fit : Fit
        How the lines are fitted.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    intervals: Annotated[int, Range(3, 16, "intervals")] = 8
    fit: Fit = Fit.LSQ

    @property
    def lower_bounds(self) -> tuple[float, ...]:
        """Lower ends of the intervals 1 to I - 1, ascending; exact in FP16."""
        return lower_bounds(self.intervals)

    @property
    def bound_codes(self) -> tuple[int, ...]:
        """`lower_bounds` in FP16."""
        return tuple(BINARY16.from_fraction(bound) for bound in self.lower_bounds)

    @property
    def slope_codes(self) -> tuple[int, ...]:
        """The slopes a of the intervals 0 to I - 1 in FP16; that of the tail is 0."""
        return tuple(BINARY16.from_fraction(float(slope)) for slope, _ in lines(self))

    @property
    def intercept_codes(self) -> tuple[int, ...]:
        """The intercepts b of the intervals 0 to I - 1 in FP16; that of the tail is 0."""
        return tuple(BINARY16.from_fraction(float(intercept)) for _, intercept in lines(self))


@cache
def lower_bounds(intervals: int) -> tuple[float, ...]:
    """Return the lower ends of all intervals but the tail, ascending.

    What an interval of width w adds to the squared error of a softmax is about e^2x w^5 for each
    score in it; scores are the denser the farther they are from the maximum. Where their density
    falls as e^x, bounds at equal distances of exp(x / 5) share the error out evenly; `WIDENING`
    is a little more, for scores that are denser near the maximum.
    """
    if intervals in PUBLISHED:
        return tuple(map(float, PUBLISHED[intervals]))
    tail = -min(14.0, 8 + intervals / 2)
    least = float(mpmath.exp(tail / WIDENING))
    pieces = intervals - 1
    inner = [
        WIDENING * float(mpmath.log(least + (1 - least) * k / pieces)) for k in range(1, pieces)
    ]
    return (tail, *(round(GRID * bound) / GRID for bound in inner))


@cache
def lines(p: IntervalParameters) -> tuple[tuple[Any, Any], ...]:
    """Return slope and intercept of each interval, the tail's zeros first, to 50 digits."""
    with mpmath.workdps(50):
        ends = [mpmath.mpf(bound) for bound in (*p.lower_bounds, 0)]
        return (
            (mpmath.mpf(0), mpmath.mpf(0)),
            *(_line(lower, upper, p.fit) for lower, upper in pairwise(ends)),
        )


def _line(lower: Any, upper: Any, fit: Fit) -> tuple[Any, Any]:
    """Fit one line, by the closed form of its integrals."""
    width, centre = upper - lower, (lower + upper) / 2
    rise, start = mpmath.exp(upper), mpmath.exp(lower)
    mean = (rise - start) / width
    # The integral of (x - centre) e^x, over that of (x - centre)^2.
    slope = ((width / 2 - 1) * rise + (width / 2 + 1) * start) * 12 / width**3
    intercept = mean - slope * centre
    if fit is Fit.NONNEG and slope * lower + intercept < 0:
        # Through 0 at the lower end: the integral of (x - lower) e^x, over that of its square.
        slope = ((width - 1) * rise + start) * 3 / width**3
        intercept = -slope * lower
    return slope, intercept
