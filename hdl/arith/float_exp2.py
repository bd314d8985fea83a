"""2**x of an FP16 number as a power of two and an interpolated mantissa."""

from amaranth.hdl import Cat, Const, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.float_exp import FRACTION_BITS, VALUE_BITS, line
from hdl.arith.float_format import BINARY16
from hdl.arith.operator import Operator

WHOLE_BITS = 17
"""Bits of the power of two: FP16 numbers range from -65504 to 65504."""

DROPPED_BITS = VALUE_BITS - BINARY16.mantissa_bits
"""Bits of a segment's value below the mantissa."""


class FloatExp2(Operator):
    """``2**x = 2**whole * (1 + mantissa / 1024)`` of an FP16 number x.

    The integer part of x needs no arithmetic: it is the power of two, from which a softmax
    subtracts its maximum to obtain a shift distance. The fraction selects a segment of `FloatExp`.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** x is truncated to
    `FRACTION_BITS` fraction bits. The result is at most 0.88 ulp of an 11-bit significand from the
    exact value, 1 for ``x = 0`` and exact for every integer; the function is monotonic. The result
    for an infinity or a NaN is undefined.

    Parameters
    ----------
    stages : int
        Pipeline stages. With three, one follows the alignment, one is in the interpolation, and the
        last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY16.layout)
        x.
    whole : Out(signed(WHOLE_BITS))
        The power of two: the floor of x, plus 1 where the significand rounds up to 2.
    mantissa : Out(10)
        Fraction bits of the significand.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {
            "a": In(BINARY16.layout),
            "whole": Out(signed(WHOLE_BITS)),
            "mantissa": Out(BINARY16.mantissa_bits),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Align, interpolate; cut after each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        # |x| is significand * 2**(code - 25). Place the significand for the largest code, 30, and
        # shift it right. A subnormal lies below the fraction's last bit, with or without a hidden
        # bit.
        places = WHOLE_BITS - 1 + FRACTION_BITS
        significand = Cat(
            Const(0, places - BINARY16.significand_bits), self.a.mantissa, Const(1, 1)
        )
        magnitude = (significand >> (30 - self.a.exponent)[:5])[:places]
        # For x < 0 take the complement, so that the fraction increases with x; the result is at
        # most one step below -|x|.
        fixed = magnitude ^ self.a.sign.replicate(places)
        fixed, sign = pipeline.cut(fixed, self.a.sign)

        fraction = fixed[:FRACTION_BITS]
        # In the last step the nearest significand is 2: increment the power and clear the mantissa.
        # This makes negative integers, whose complement is taken, exact.
        up = fraction.all()
        whole = Signal(signed(WHOLE_BITS))
        m.d.comb += whole.eq(Cat(fixed[FRACTION_BITS:], sign).as_signed() + up)
        left, rise = line(fraction)
        left, rise, whole, up = pipeline.cut(left, rise, whole, up)

        half = 1 << DROPPED_BITS - 1
        mantissa = (left + rise + half)[DROPPED_BITS:VALUE_BITS] & ~up.replicate(
            BINARY16.mantissa_bits
        )
        mantissa, whole = pipeline.cut(mantissa, whole)
        m.d.comb += [self.mantissa.eq(mantissa), self.whole.eq(whole.as_signed())]
        return m
