"""The intervals of LAD's piecewise linear exponential, and a line for each (Section III-A)."""

from itertools import pairwise

from mpmath import exp, mp, mpf

from hdl.arith.float_format import BINARY16
from hdl.parameters import parameter_object, require, require_range

MODE_BITS = 4
"""Bits of an interval's index: at most 16 intervals."""

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


def fitted_table(*lowers: float) -> IntervalTable:
    """Return a table of least-squares lines, each over its interval's uniform measure; 0 below."""
    lines = [(0, 0)]
    with mp.workprec(100):
        for low, high in pairwise([*map(mpf, lowers), mpf(0)]):
            width = high - low
            mean = (exp(high) - exp(low)) / width
            moment = ((high - 1) * exp(high) - (low - 1) * exp(low)) / width
            slope = 12 * (moment - mean * (low + high) / 2) / width**2
            lines.append((slope, mean - slope * (low + high) / 2))
        codes = [tuple(BINARY16.from_fraction(float(x)) for x in line) for line in lines]
    a, b = zip(*codes, strict=True)
    return IntervalTable(lowers=tuple(map(BINARY16.from_fraction, lowers)), a=a, b=b)


FIVE = fitted_table(-10, -6, -3, -1)
"""The intervals of the paper's Figure 2."""

EIGHT = fitted_table(-12, -9, -6.5, -4.5, -3, -1.75, -0.75)
"""Narrower intervals, for shorter texts."""

TABLES = {"five": FIVE, "eight": EIGHT}
"""The tables that have names."""
