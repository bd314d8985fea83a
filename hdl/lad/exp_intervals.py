"""Intervals of the piecewise linear exponential and their fitted lines, as FP16 tables."""

from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Annotated, NamedTuple

import mpmath

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object, require

MODE_BITS = 4
"""Bits of an interval's index, the paper's mode."""

PUBLISHED = {5: (-10, -6, -3, -1), 8: (-12, -9, -6.5, -4.5, -3, -1.75, -0.75)}
"""Lower bounds of the intervals above the tail: I = 5 as in the paper's Figure 2; I = 8 is ours."""

MEASURED_TAILS = {12: 10}
"""Tails with the fewest active positions of those whose errors are not above the rule's, by the
number of intervals (`golden/study/lad_tail.py`)."""

WIDENING = 6
"""All other partitions have bounds that are equidistant in exp(x / WIDENING)."""

GRID = 4
"""These bounds are multiples of 1 / GRID."""


class Fit(Enum):
    """Method of fitting an interval's line to exp: least squares, all x weighted equally."""

    LSQ = 0
    """Without a constraint: at the lower end of its interval a line can be below 0."""

    NONNEG = 1
    """With the constraint that no line is below 0 within its interval."""


@parameter_object
class IntervalParameters(Parameters):
    """Partition and fit of the piecewise linear exponential.

    Parameters
    ----------
    intervals : int
        The number of intervals, the paper's I, including the tail from minus infinity.
    fit : Fit
        Method of fitting the lines.
    tail : int
        The tail is below ``-tail``; 0 for the tail of `PUBLISHED` or `MEASURED_TAILS`, or else
        ``min(14, 8 + intervals / 2)``.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    intervals: Annotated[int, Range(3, 16, "intervals")] = 12
    fit: Fit = Fit.LSQ
    tail: Annotated[int, Range(0, 16, "units")] = 0

    def __post_init__(self) -> None:
        """Check that every interval has a width."""
        super().__post_init__()
        require(not 0 < self.tail < 6, "tail must be 0 or at least 6", self.tail)

    @property
    def lower_bounds(self) -> tuple[float, ...]:
        """Lower ends of intervals 1 to I - 1, ascending; exact in FP16."""
        return lower_bounds(self.intervals, self.tail)

    @property
    def bound_codes(self) -> tuple[int, ...]:
        """`lower_bounds` in FP16."""
        return tuple(BINARY16.from_fraction(bound) for bound in self.lower_bounds)

    @property
    def slope_codes(self) -> tuple[int, ...]:
        """Slopes a of intervals 0 to I - 1 in FP16; the tail's is 0."""
        return tuple(BINARY16.from_fraction(line.slope) for line in lines(self))

    @property
    def intercept_codes(self) -> tuple[int, ...]:
        """Intercepts b of intervals 0 to I - 1 in FP16; the tail's is 0."""
        return tuple(BINARY16.from_fraction(line.intercept) for line in lines(self))


@cache
def lower_bounds(intervals: int, tail: int = 0) -> tuple[float, ...]:
    """Return the lower ends of all intervals except the tail, ascending.

    An interval of width w adds about e^2x w^5 to the squared error of a softmax for each score in
    it, and there are more scores the farther they are from the maximum. If their density decreases
    as e^x, bounds that are equidistant in exp(x / 5) distribute the error evenly; `WIDENING` is
    slightly larger, since scores are denser near the maximum.
    """
    if intervals in PUBLISHED and not tail:
        return tuple(map(float, PUBLISHED[intervals]))
    lowest = -float(tail or MEASURED_TAILS.get(intervals) or min(14, 8 + intervals / 2))
    least = float(mpmath.exp(lowest / WIDENING))
    pieces = intervals - 1
    inner = [
        WIDENING * float(mpmath.log(least + (1 - least) * k / pieces)) for k in range(1, pieces)
    ]
    return (lowest, *(round(GRID * bound) / GRID for bound in inner))


class Line(NamedTuple):
    """Slope a and intercept b of an interval's line, rounded to float64."""

    slope: float
    intercept: float


@cache
def lines(p: IntervalParameters) -> tuple[Line, ...]:
    """Return the line of each interval; that of the tail is 0."""
    ends = (*p.lower_bounds, 0.0)
    fitted = (_line(lower, upper, p.fit) for lower, upper in pairwise(ends))
    return (Line(0.0, 0.0), *fitted)


def _line(lower: float, upper: float, fit: Fit) -> Line:
    """Fit one line, with the closed form of the integrals in 50 digits."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(lower), mpmath.mpf(upper)
        width, centre = high - low, (low + high) / 2
        rise, start = mpmath.exp(high), mpmath.exp(low)
        mean = (rise - start) / width
        # The integral of (x - centre) e^x, divided by that of (x - centre)^2.
        slope = ((width / 2 - 1) * rise + (width / 2 + 1) * start) * 12 / width**3
        intercept = mean - slope * centre
        if fit is Fit.NONNEG and slope * low + intercept < 0:
            # Through 0 at the lower end: the integral of (x - lower) e^x, divided by that of its
            # square.
            slope = ((width - 1) * rise + start) * 3 / width**3
            intercept = -slope * low
        return Line(float(slope), float(intercept))
