"""The intervals of LAD's piecewise linear exponential, and a line for each (Section III-A)."""

from itertools import pairwise

from hdl.arith.float_format import BINARY16
from hdl.lad.exp_intervals import MODE_BITS, IntervalParameters
from hdl.parameters import parameter_object, require, require_range

COUNT_BITS = 12
"""Bits of a counter of steps; with a mode it fills 16 bits."""


@parameter_object
class IntervalTable:
    """Intervals (lower, upper] of scores less their maximum, and the lines that stand for exp.

    Interval 0 reaches from minus infinity to the second entry of `lowers`, the last one from its
    own lower bound to plus infinity.

    Parameters
    ----------
    lowers : tuple of int
        FP16 codes of the lower bounds of intervals 1, 2, ..., ascending.
    a, b : tuple of int
        FP16 codes of slope and intercept of intervals 0, 1, 2, ...

    Raises
    ------
    ValueError
        If there are fewer than 2 or more than 16 intervals, the bounds do not ascend, or a line is
        missing.
    """

    lowers: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_range("the number of intervals", len(self.lowers) + 1, 2, 1 << MODE_BITS)
        bounds = [BINARY16.to_fraction(code) for code in self.lowers]
        ascend = all(low < high for low, high in pairwise(bounds))
        require(ascend, "lower bounds must ascend", self.lowers)
        require(len(self.a) == self.intervals, "every interval must have a slope", self.a)
        require(len(self.b) == self.intervals, "every interval must have an intercept", self.b)

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return len(self.lowers) + 1


def interval_table(p: IntervalParameters) -> IntervalTable:
    """Return the table of a piecewise linear exponential."""
    return IntervalTable(lowers=p.bound_codes, a=p.slope_codes, b=p.intercept_codes)


FIVE, EIGHT, TWELVE = (
    interval_table(IntervalParameters(intervals=intervals)) for intervals in (5, 8, 12)
)
"""The intervals of the paper's Figure 2, and narrower ones."""

TABLES = {"five": FIVE, "eight": EIGHT, "twelve": TWELVE}
"""The tables that have names."""
