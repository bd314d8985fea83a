"""Conversion of integers with a binary point to binary32."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY32
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, round_up
from hdl.parameters import require_range

POINT = signed(10)
"""Shape of a binary point: the number of fraction bits; negative if the integer is scaled up."""


class IntegerToFloat(Operator):
    """The binary32 number nearest to ``a / 2**point``.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** round to nearest,
    ties to even. A number below the normal range becomes a zero of its sign, a number beyond the
    largest finite one becomes an infinity.

    Parameters
    ----------
    width : int
        Bits of the integer, 2 to 64.
    stages : int
        Pipeline stages. The first registers the result, the second follows the normalisation, the
        third follows the count of leading zeros.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(signed(width))
        The integer.
    point : In(POINT)
        Fraction bits of the integer.
    result : Out(BINARY32.layout)
        The converted number.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, width: int, stages: int = 0, enable: bool = False) -> None:
        require_range("width", width, 2, 64)
        self.width = width
        members = {"a": In(signed(width)), "point": In(POINT), "result": Out(BINARY32.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Normalise the magnitude; round it to 24 bits."""
        m = Module()
        before_shift = self.stages >= 3
        # The cuts after the shift and at the result always exist; a third stage adds another.
        pipeline = self.pipeline(m, cuts=2 + before_shift)
        sign: Value = self.a[-1]
        magnitude, zeros = Signal(self.width), Signal(range(self.width + 1))
        m.d.comb += [
            magnitude.eq(Mux(sign, -self.a, self.a)),
            zeros.eq(leading_zeros(magnitude)),
        ]
        counted = (sign, magnitude, zeros, self.point)
        if before_shift:
            counted = pipeline.cut(*counted)
        sign, shifted, count, point = counted
        digits = Signal(max(self.width, BINARY32.significand_bits + 2))
        code = Signal(signed(POINT.width + 2))
        m.d.comb += [
            digits[-self.width :].eq(shifted << count),
            code.eq(BINARY32.bias + self.width - 1 - count - point),
        ]
        sign, digits, code = pipeline.cut(sign, digits, code.as_unsigned())
        code = code.as_signed()

        kept, dropped = digits[-24:], digits[:-24]
        up = round_up(Rounding.HALF_EVEN, kept[0], dropped[-1], dropped[:-1].any())
        # A carry out of the significand increments the exponent.
        rounded = Signal(32 + 3)
        m.d.comb += rounded.eq(Cat(kept[:23], code[:10]) + up)
        zero = ~digits[-1] | (code <= 0)
        over = (code >= BINARY32.exponent_mask) | rounded[23:31].all()
        finite = Mux(zero, 0, rounded[:31])
        infinity = BINARY32.max_finite + 1
        (result,) = pipeline.cut(Cat(Mux(over & ~zero, infinity, finite)[:31], sign))
        m.d.comb += self.result.eq(result)
        return m
