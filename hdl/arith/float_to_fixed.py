"""Conversion of binary32 numbers to 16-bit integers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY32
from hdl.arith.float_shift import shift_right
from hdl.arith.integer_to_float import POINT
from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, round_up
from hdl.arith.saturating_add import saturate

RESULT = signed(16)
"""Shape of the result."""

LEAST = BINARY32.significand_bits - (RESULT.width - 1)
"""Minimum right shift of a significand that fits the result."""


class FloatToFixed(Operator):
    """The 16-bit integer nearest to ``a * 2**point``.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** round to nearest,
    ties to even, then clamp. Subnormals count as zero. Infinities and NaNs give the limit of the
    range with their sign.

    Parameters
    ----------
    stages : int
        Pipeline stages. The first registers the result, the second follows the shift.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY32.layout)
        The number.
    point : In(POINT)
        Fraction bits of the result.
    result : Out(signed(16))
        The integer.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {"a": In(BINARY32.layout), "point": In(POINT), "result": Out(RESULT)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Shift the significand to the binary point, round, clamp."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        normal = self.a.exponent.any()
        significand = Cat(self.a.mantissa, Const(1, 1)) & normal.replicate(24)
        # Right-shift distance relative to the largest number that fits.
        distance = Signal(signed(POINT.width + 2))
        m.d.comb += distance.eq(BINARY32.bias + 23 - LEAST - self.point - self.a.exponent)
        beyond = ((distance < 0) & normal) | self.a.exponent.all()
        widest = 1 << 5
        amount = Signal(5)
        m.d.comb += amount.eq(Mux(distance >= widest, widest - 1, distance[:5]))
        whole: Value = significand[LEAST - 1 :]
        kept, sticky = shift_right(m, whole, amount, len(whole))
        kept, sticky, beyond, sign = pipeline.cut(
            kept, sticky | significand[: LEAST - 1].any(), beyond, self.a.sign
        )
        up = round_up(Rounding.HALF_EVEN, kept[1], kept[0], sticky)
        magnitude = Mux(beyond, 1 << RESULT.width, kept[1:] + up)
        clamped, _clamps = saturate(Mux(sign, -magnitude, magnitude), RESULT)
        (result,) = pipeline.cut(clamped)
        m.d.comb += self.result.eq(result)
        return m
