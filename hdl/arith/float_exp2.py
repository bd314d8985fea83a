"""2**x of an FP16 number: a power of two, and a mantissa from the lines of a table."""

from amaranth.hdl import Cat, Const, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.float_exp import FRACTION_BITS, VALUE_BITS, line
from hdl.arith.float_format import BINARY16
from hdl.arith.operator import Operator

WHOLE_BITS = 17
"""Bits of the power of two: FP16 numbers lie between -65504 and 65504."""

DROPPED_BITS = VALUE_BITS - BINARY16.mantissa_bits
"""Bits of a line's value below the mantissa's."""


class FloatExp2(Operator):
    """``2**x = 2**whole * (1 + mantissa / 1024)`` of an FP16 number x.

    The integer part of x needs no arithmetic: it is a power of two, which a softmax subtracts its
    maximum from, and shifts by. The fraction chooses one of the lines of `FloatExp`.

    **Latency** `stages` cycles. **Throughput** one result a cycle. **Numerics** x is truncated to
    `FRACTION_BITS` fraction bits; the result is at most 0.88 ulp of an 11-bit significand from the
    exact value, 1 for ``x = 0`` and exact for every integer; it is monotonic. Of an infinity or a
    NaN it means nothing.

    Parameters
    ----------
    stages : int
        Pipeline stages. Of three, one stands behind the alignment, one in the line, and the last
        one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a : In(BINARY16.layout)
        x.
    whole : Out(signed(WHOLE_BITS))
        The power of two, the floor of x but for a mantissa that is rounded up to 2.
    mantissa : Out(10)
        What stands behind the leading one.

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
        """Align, walk along the line; a cut behind each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        # |x| is significand * 2**(code - 25): a shift to the right of its largest place, where code
        # 30 would stand. A subnormal is below the fraction's last bit, with its leading one or not.
        places = WHOLE_BITS - 1 + FRACTION_BITS
        significand = Cat(
            Const(0, places - BINARY16.significand_bits), self.a.mantissa, Const(1, 1)
        )
        magnitude = (significand >> (30 - self.a.exponent)[:5])[:places]
        # The complement of |x| counts upwards, as the lines do; it is a step below -|x|, or less.
        fixed = magnitude ^ self.a.sign.replicate(places)
        fixed, sign = pipeline.cut(fixed, self.a.sign)

        fraction = fixed[:FRACTION_BITS]
        # In the last step the mantissa is nearest to 2: a one more in the power, and no mantissa.
        # So an integer below zero, of which the complement is taken, is exact.
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
