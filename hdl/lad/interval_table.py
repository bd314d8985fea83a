"""Tables of LAD's piecewise linear exponential: intervals and lines (Section III-A)."""

from itertools import pairwise

from hdl.arith.float_format import BINARY16
from hdl.lad.exp_intervals import MODE_BITS, IntervalParameters
from hdl.parameters import parameter_object, require, require_range

COUNT_BITS = 12
"""Bits of a counter (cnt); together with a mode it occupies 16 bits."""


@parameter_object
class IntervalTable:
    """Intervals (lower, upper] of scores less their maximum, and a line for exp in each.

    Interval 0 is the tail: it extends from minus infinity to the first of `lowers`. The last
    interval extends from its lower bound to plus infinity.

    Parameters
    ----------
    lowers : tuple of int
        FP16 codes of the lower bounds of intervals 1, 2, ..., ascending.
    a, b : tuple of int
        FP16 codes of slope a and intercept b of intervals 0, 1, 2, ...

    Raises
    ------
    ValueError
        If there are fewer than 2 or more than 16 intervals, if the bounds do not ascend, or if a
        line is missing.
    """

    lowers: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check bounds and numbers of lines."""
        require_range("the number of intervals", len(self.lowers) + 1, 2, 1 << MODE_BITS)
        bounds = [BINARY16.to_fraction(code) for code in self.lowers]
        ascend = all(low < high for low, high in pairwise(bounds))
        require(ascend, "lower bounds must ascend", self.lowers)
        require(len(self.a) == self.intervals, "every interval must have a slope", self.a)
        require(len(self.b) == self.intervals, "every interval must have an intercept", self.b)

    @property
    def intervals(self) -> int:
        """Number of intervals, the paper's I."""
        return len(self.lowers) + 1


def interval_table(p: IntervalParameters) -> IntervalTable:
    """Return the tables of a piecewise linear exponential."""
    return IntervalTable(lowers=p.bound_codes, a=p.slope_codes, b=p.intercept_codes)


FIVE, EIGHT, TWELVE = (
    interval_table(IntervalParameters(intervals=intervals)) for intervals in (5, 8, 12)
)
"""The partition of the paper's Figure 2, and two finer ones."""

TABLES = {"five": FIVE, "eight": EIGHT, "twelve": TWELVE}
"""Tables that a parameter can name."""
