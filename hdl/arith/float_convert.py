"""Conversion between two floating-point formats."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import FloatFormat
from hdl.arith.float_normalise import normalised
from hdl.arith.float_shift import shift_right
from hdl.arith.float_unpack import Inexact, pack, require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, round_up
from hdl.parameters import require, require_choice


class FloatConvert(Operator):
    """Conversion of a number to the nearest number of another format.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** exact to a wider
    format; to a narrower one, round to nearest, ties to even; subnormals in and out; infinities are
    kept; every NaN becomes the quiet NaN with sign 0.

    Parameters
    ----------
    source, target : FloatFormat
        Signed IEEE formats. Either every number of the source is a normal number of the target, or
        the target has fewer mantissa bits and a range that is not larger.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values, and a result beyond the largest finite number becomes that number.
    stages : int
        Pipeline stages. The first registers the result, the second follows the shift.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(source.layout)
        The operand.
    result : Out(target.layout)
        The converted number.

    Raises
    ------
    ValueError
        If a parameter is illegal or the two formats are neither wider nor narrower.
    """

    def __init__(
        self,
        *,
        source: FloatFormat,
        target: FloatFormat,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("source", source)
        require_ieee("target", target)
        require_choice("saturate", saturate, (False, True))
        self.widens = (
            target.mantissa_bits >= source.mantissa_bits and source.smallest_power > -target.bias
        )
        narrows = target.mantissa_bits < source.mantissa_bits and target.bias <= source.bias
        require(
            self.widens or narrows, "target must be wider or narrower than source", (source, target)
        )
        self.source = source
        self.target = target
        self.saturate = saturate
        super().__init__(
            {"a": In(source.layout), "result": Out(target.layout)}, stages=stages, enable=enable
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the significand to the target's binary point, round."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        a = unpack(m, self.source, self.a, saturate=self.saturate)
        offset = self.target.bias - self.source.bias
        code = Signal(max(self.source.exponent_bits, self.target.exponent_bits) + 1)
        if self.widens:
            significand, exponent = normalised(a)
            m.d.comb += code.eq(Mux(a.zero, 0, exponent + offset))
            mantissa = significand[:-1] << (self.target.mantissa_bits - self.source.mantissa_bits)
            increment = a.zero & 0
        else:
            least = 1 - offset
            amount = Signal(range(least + 1))
            m.d.comb += amount.eq(Mux(a.exponent < least, least - a.exponent, 0))
            width = self.source.significand_bits
            placed, sticky = shift_right(m, a.significand, amount, width)
            dropped = self.source.mantissa_bits - self.target.mantissa_bits
            m.d.comb += code.eq(Mux(placed[-1], a.exponent + offset, 0))
            mantissa = placed[dropped:-1]
            sticky = sticky | placed[: dropped - 1].any()
            increment = round_up(Rounding.HALF_EVEN, mantissa[0], placed[dropped - 1], sticky)
        mantissa, code, increment, sign, infinite, nan = pipeline.cut(
            mantissa[: self.target.mantissa_bits], code, increment, a.sign, a.infinite, a.nan
        )
        (result,) = pipeline.cut(
            pack(
                m,
                self.target,
                Inexact(
                    sign=sign,
                    exponent=code,
                    mantissa=mantissa,
                    increment=increment,
                    infinite=infinite,
                    nan=nan,
                ),
                saturate=self.saturate,
            )
        )
        m.d.comb += self.result.eq(result)
        return m
