"""Fused multiply-add of one floating-point format."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product
from hdl.arith.float_cut import NEVER, cut, multiply_add_special
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_sum import Significands, SumForm, Term, compare, rounded_sum
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require_choice


class FloatFma(Operator):
    """``a * b + c``, rounded once.

    The product of subnormal factors is not normalised: the sum keeps as many fraction bits as a
    subnormal factor can need. If both factors are subnormal, the addend always has the larger
    exponent.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** round to nearest,
    ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every NaN result is the
    quiet NaN with sign 0.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values, and a result beyond the largest finite number becomes that number.
    stages : int
        Pipeline stages. The first registers the result, the second follows the sum, the third
        follows the integer product, the fourth precedes the rounding, the fifth precedes the sum.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The factors.
    c : In(number_format.layout)
        The addend.
    result : Out(number_format.layout)
        The sum.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        number_format: FloatFormat = BINARY16,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_choice("saturate", saturate, (False, True))
        self.number_format = number_format
        self.saturate = saturate
        layout = number_format.layout
        members = {"a": In(layout), "b": In(layout), "c": In(layout), "result": Out(layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Multiply, align and add, normalise and round."""
        m = Module()
        before_rounding, before_sum = self.stages >= 4, self.stages >= 5
        pipeline = self.pipeline(m, cuts=3 + before_rounding + before_sum)
        number_format = self.number_format
        a = unpack(m, number_format, self.a, saturate=self.saturate)
        b = unpack(m, number_format, self.b, saturate=self.saturate)
        c = unpack(m, number_format, self.c, saturate=self.saturate)
        exponent = Signal(signed(number_format.exponent_bits + 2))
        # Signed and two bits wider: the product of two subnormals is far below any code.
        m.d.comb += exponent.eq(a.exponent + b.exponent + (1 - number_format.bias))
        # A product of zero must not determine the exponent, whatever the sum of its factors' codes.
        order = compare(
            m,
            Term(a.sign ^ b.sign, exponent, a.zero | b.zero),
            Term(c.sign, c.exponent),
            exponent_bits=number_format.exponent_bits + 1,
            distance_bits=number_format.exponent_bits + 2,
        )
        # The exponent comparison and the multiplication of significands run in parallel.
        order, terms, special = cut(
            pipeline,
            order,
            Significands(product(m, a.significand, b.significand), c.significand),
            NEVER if self.saturate else multiply_add_special(a, b, c),
        )
        # The sum keeps the whole product, so that only its end is rounded.
        result = rounded_sum(
            m,
            pipeline,
            order,
            terms,
            special,
            SumForm(
                number_format,
                before_sum,
                before_rounding,
                self.saturate,
                leading=number_format.significand_bits,
            ),
        )
        m.d.comb += self.result.eq(result)
        return m
