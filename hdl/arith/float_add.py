"""Floating-point addition and subtraction."""

from dataclasses import replace

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from hdl.arith.float_cut import NEVER, sum_special
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_sum import Significands, SumForm, Term, compare, rounded_sum
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require_choice


class FloatAdd(Operator):
    """Sum or difference of two floating-point numbers, rounded once.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** round to nearest,
    ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every NaN result is the
    quiet NaN with sign 0.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    subtractor : bool
        Add the input `subtract`.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values, and a result beyond the largest finite number becomes that number.
    stages : int
        Pipeline stages. The first registers the result, the second follows the sum, the third
        precedes the sum, the fourth precedes the rounding.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    subtract : In(1)
        Compute ``a - b`` instead of ``a + b``; only with `subtractor`.
    result : Out(number_format.layout)
        The sum or difference.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        number_format: FloatFormat = BINARY16,
        subtractor: bool = False,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_choice("subtractor", subtractor, (False, True))
        require_choice("saturate", saturate, (False, True))
        self.number_format = number_format
        self.saturate = saturate
        layout = number_format.layout
        control = {"subtract": In(1)} if subtractor else {}
        super().__init__(
            {"a": In(layout), "b": In(layout)} | control | {"result": Out(layout)},
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Align, add, normalise, round."""
        m = Module()
        before_sum, before_rounding = self.stages >= 3, self.stages >= 4
        # The cuts after the sum and at the result always exist; more stages add the others.
        pipeline = self.pipeline(m, cuts=2 + before_sum + before_rounding)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.number_format, self.b, saturate=self.saturate)
        # a - b is a + (-b): the rest of the adder needs no case for subtraction.
        b = replace(b, sign=b.sign ^ getattr(self, "subtract", 0))
        # Biased exponents have the same order as exponents, so the bias need not be removed.
        order = compare(
            m,
            Term(a.sign, a.exponent),
            Term(b.sign, b.exponent),
            exponent_bits=self.number_format.exponent_bits + 1,
            distance_bits=self.number_format.exponent_bits + 1,
        )
        result = rounded_sum(
            m,
            pipeline,
            order,
            Significands(a.significand, b.significand),
            NEVER if self.saturate else sum_special(a, b),
            SumForm(self.number_format, before_sum, before_rounding, self.saturate),
        )
        m.d.comb += self.result.eq(result)
        return m
