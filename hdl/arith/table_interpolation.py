"""Functions of one variable by linear interpolation in a table of breakpoints."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import mpmath
from amaranth.hdl import Array, Const, Module, Shape, Value, signed, unsigned
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.operator import Operator
from hdl.parameters import require, require_range


class TableInterpolation(Operator):
    """A piecewise linear function, defined by its values at equidistant breakpoints.

    **Latency** `stages` cycles. **Throughput** one value per cycle.

    **Numerics** the operand's upper bits i select a segment, its lower bits o are the offset in it.
    ``b[i] + (b[i + 1] - b[i]) * o / 2**offset_bits``, with breakpoints b, is divided by
    2**guard_bits and rounded once, half up. The table holds the start and the step of each segment,
    so a value takes one lookup, one multiplication and one addition.

    Parameters
    ----------
    breakpoints : tuple[int, ...]
        Values at the ends of the segments: ``2**n + 1`` values, n from 1 to 12.
    offset_bits : int
        Bits of the offset in a segment, 1 to 24.
    guard_bits : int
        Fraction bits of the breakpoints that the result omits, 1 to 16.
    stages : int
        Pipeline stages: after the table, and at the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(n + offset_bits)
        The operand.
    result : Out
        The value; signed if any breakpoint is negative, with only the bits that the breakpoints
        need.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        breakpoints: tuple[int, ...],
        offset_bits: int,
        guard_bits: int,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        pieces = len(breakpoints) - 1
        require(
            2 <= pieces <= 4096 and pieces & (pieces - 1) == 0,
            "breakpoints must be one more than a power of two from 2 to 4096",
            len(breakpoints),
        )
        require_range("offset_bits", offset_bits, 1, 24)
        require_range("guard_bits", guard_bits, 1, 16)
        self.breakpoints = breakpoints
        self.offset_bits = offset_bits
        self.guard_bits = guard_bits
        half = 1 << guard_bits - 1
        members = {
            "a": In((pieces - 1).bit_length() + offset_bits),
            "result": Out(smallest_shape((value + half) >> guard_bits for value in breakpoints)),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Look up, cut, multiply and add, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        # The table includes the rounding half.
        half = 1 << self.guard_bits - 1
        # The difference of adjacent breakpoints is a table of its own, which saves a subtractor.
        starts = [value + half for value in self.breakpoints[:-1]]
        steps = [after - before for before, after in pairwise(self.breakpoints)]
        piece, offset = self.a[self.offset_bits :], self.a[: self.offset_bits]
        start, step, offset = pipeline.cut(look_up(starts, piece), look_up(steps, piece), offset)
        dropped = self.offset_bits + self.guard_bits
        total = CarrySaveSum(m, dropped + len(self.result))
        total.add_product(offset, step)
        total.add(start.shift_left(self.offset_bits))
        (result,) = pipeline.cut(total.result()[dropped:])
        m.d.comb += self.result.eq(result)
        return m


def smallest_shape(values: Iterable[int]) -> Shape:
    """Return the narrowest shape that holds all values; signed if any is negative."""
    values = list(values)
    low, high = min(values), max(values)
    if low >= 0:
        return unsigned(max(high.bit_length(), 1))
    return signed(max((~low).bit_length(), high.bit_length()) + 1)


def look_up(table: list[int], index: Value) -> Value:
    """Return an element of a constant table, with only the bits that the table needs."""
    shape = smallest_shape(table)
    return Array(Const(value, shape) for value in table)[index]


def exact_breakpoints(
    function: Callable[[float], float], *, pieces: int, width: float, scale: int
) -> tuple[int, ...]:
    """Return ``scale * function`` at the ends of equal segments of 0 to `width`, to nearest.

    The function is computed with 100 bits, so that no table of this project is near a tie.

    Parameters
    ----------
    function : Callable
        Function from an mpmath number to an mpmath number.
        pieces : int
            Number of segments.
        width : float
            Upper end of the last segment.
        scale : int
            Factor of the returned integers.
    """
    with mpmath.workprec(100):
        step = mpmath.mpf(width) / pieces
        return tuple(int(mpmath.nint(scale * function(i * step))) for i in range(pieces + 1))
