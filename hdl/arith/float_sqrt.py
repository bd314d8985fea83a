"""FP16 square root by an array of restoring rows, and its reciprocal by linear interpolation."""

import mpmath
from amaranth.hdl import Array, Cat, Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import INFINITY, QUIET_NAN, normalised
from hdl.arith.float_unpack import unpack
from hdl.arith.operator import Operator
from hdl.arith.shapes import constant
from hdl.parameters import require_choice

ROWS = BINARY16.significand_bits + 1
"""Digits of a square root: the significand and a rounding bit."""

SEGMENTS = 32
"""Segments of the reciprocal root on [1, 2), and as many on [2, 4)."""

VALUE_BITS = 12
"""Fraction bits of a segment's value."""

SLOPE_BITS = 5
"""Fraction bits of a segment's slope."""


def line_table() -> tuple[tuple[int, int], ...]:
    """Return ``(value, -slope)`` of each segment of ``2 / sqrt(s)``, in units of the last place.

    The first half is for s in [1, 2), the second for s in [2, 4), with its slope relative to s / 2.
    A segment has the slope of the curve at its centre and passes there halfway between the curve
    and its chord. The value is the one at the segment's left end.
    """
    table = []
    with mpmath.workprec(100):
        for binade in (1, 2):
            for segment in range(SEGMENTS):
                places = [1 + mpmath.mpf(2 * segment + half) / (2 * SEGMENTS) for half in range(3)]
                left, centre, right = (2 / mpmath.sqrt(binade * place) for place in places)
                slope = int(mpmath.nint(centre / (2 * places[1]) * 2**SLOPE_BITS))
                height = (centre + (left + right) / 2) / 2
                value = height + mpmath.mpf(slope) / 2**SLOPE_BITS / (2 * SEGMENTS)
                table.append((int(mpmath.nint(value * 2**VALUE_BITS)), slope))
    return tuple(table)


class FloatSqrt(Operator):
    """Square root of an FP16 number.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** correctly
    rounded. No root lies halfway between two numbers, so the rounding bit alone decides. No root is
    subnormal. The root of -0 is -0; the root of any other negative number is NaN.

    Parameters
    ----------
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values; the root of a negative number is 0.
    stages : int
        Pipeline stages: the last one registers the result, the others follow the normalisation and
        each of the 12 rows.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY16.layout)
        The number.
    result : Out(BINARY16.layout)
        Its square root.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, saturate: bool = False, stages: int = 0, enable: bool = False) -> None:
        require_choice("saturate", saturate, (False, True))
        self.saturate = saturate
        members = {"a": In(BINARY16.layout), "result": Out(BINARY16.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Consume two digits of the operand and produce one of the root in each row."""
        m = Module()
        pipeline = self.pipeline(m, cuts=ROWS + 2)
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        significand, exponent = normalised(a)
        # The bias is odd: an odd code means an even power of two and a significand in [1, 2).
        odd_power = ~exponent[0]
        radicand = Mux(odd_power, significand << 1, significand)
        code = _halved(exponent)
        zero = a.zero | (a.sign & Const(self.saturate, 1))
        nan = a.nan | (a.sign & ~a.zero & ~Const(self.saturate, 1))
        sign = a.sign & a.zero
        # Two digits above the binary point, ten below, then zeros.
        digits = Cat(Const(0, 2 * ROWS - len(radicand)), radicand)[: 2 * ROWS]
        control = (code, sign, zero, a.infinite, nan)
        digits, *control = pipeline.cut(digits, *control)

        root: Value = Const(0, 0)
        remainder: Value = Const(0, 0)
        for row in range(ROWS):
            partial = Cat(digits[-2:], remainder)
            difference = partial - Cat(Const(1, 2), root)
            fits = ~difference[-1]
            # A remainder is at most twice its root, so it has one more bit.
            remainder = Mux(fits, difference, partial)[: row + 2]
            root, remainder, digits, *control = pipeline.cut(
                Cat(fits, root), remainder, digits[:-2], *control
            )

        code, sign, zero, infinite, nan = control
        magnitude = (Cat(root[1:11], code) + root[0])[:15]
        (result,) = pipeline.cut(
            Cat(_special(magnitude, zero=zero, infinite=infinite, nan=nan), sign)
        )
        m.d.comb += self.result.eq(result)
        return m


class FloatReciprocalSqrt(Operator):
    """Reciprocal of the square root of an FP16 number.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** at most 0.928 ulp
    from the exact value over all FP16 arguments, exact at even powers of two; no result is
    subnormal. A zero gives an infinity of its sign; any other negative number gives NaN.

    Parameters
    ----------
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values; zero and negative numbers give 65504.
    stages : int
        Pipeline stages: the last one registers the result, the others follow the normalisation and
        the interpolation.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY16.layout)
        The number.
    result : Out(BINARY16.layout)
        ``1 / sqrt(a)``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, saturate: bool = False, stages: int = 0, enable: bool = False) -> None:
        require_choice("saturate", saturate, (False, True))
        self.saturate = saturate
        members = {"a": In(BINARY16.layout), "result": Out(BINARY16.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Select a segment by binade and upper fraction bits, interpolate, round."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        significand, exponent = normalised(a)
        # The result is half the interpolated value; its exponent is minus the root's exponent.
        code = (29 - _halved(exponent))[:5]
        saturated = Const(self.saturate, 1)
        huge = a.zero | (a.sign & saturated)
        nan = a.nan | (a.sign & ~a.zero & ~saturated)
        sign = a.sign & a.zero & ~saturated
        control = (code, sign, a.infinite, huge, nan)
        fraction, binade, *control = pipeline.cut(significand[:10], ~exponent[0], *control)

        value, *control = pipeline.cut(_line(fraction, binade), *control)

        code, sign, zero, huge, nan = control
        magnitude = (Cat(value[VALUE_BITS - 10 : VALUE_BITS], code) + value[VALUE_BITS - 11])[:15]
        if self.saturate:
            magnitude = Mux(huge, BINARY16.max_finite, magnitude)
            huge = Const(0, 1)
        (result,) = pipeline.cut(
            Cat(_special(magnitude, zero=zero, infinite=huge, nan=nan)[:15], sign)
        )
        m.d.comb += self.result.eq(result)
        return m


def _halved(exponent: Value) -> Value:
    """Return the root's exponent code, floor((e - 15) / 2) + 15."""
    return ((exponent + BINARY16.bias) >> 1)[:5]


def _special(magnitude: Value, *, zero: Value, infinite: Value, nan: Value) -> Value:
    """Replace a result by zero, infinity or the quiet NaN."""
    kept = magnitude & ~(zero | infinite).replicate(15)
    kept = kept | (Const(INFINITY, 15) & infinite.replicate(15))
    return Mux(nan, Const(QUIET_NAN, 15), kept)


def _line(fraction: Value, binade: Value) -> Value:
    """Return ``2 / sqrt(s)`` with `VALUE_BITS` fraction bits."""
    along_bits = len(fraction) - (SEGMENTS.bit_length() - 1)
    along, segment = fraction[:along_bits], Cat(fraction[along_bits:], binade)
    table = line_table()
    value = Array([constant(value, VALUE_BITS + 2) for value, _ in table])[segment]
    slope = Array([constant(slope, SLOPE_BITS) for _, slope in table])[segment]
    down = SLOPE_BITS + len(fraction) - VALUE_BITS
    return (value - ((slope * along) >> down))[: VALUE_BITS + 1]
