"""Fused multiply-add with narrow factors and a wide addend."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product
from hdl.arith.float_cut import NEVER, cut, multiply_add_special
from hdl.arith.float_format import BINARY16, BINARY32, FloatFormat
from hdl.arith.float_sum import Significands, SumForm, Term, compare, rounded_sum
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require, require_choice

STEP = 4
"""Step in bits, a power of two, by which leading zeros of subnormal factors are removed."""


class FloatMixed(Operator):
    """``a * b + c`` with narrow factors, and addend and result in a wide format, rounded once.

    The product is exact in the wide format. Subnormal factors cause leading zeros in the product. A
    coarse shift in steps of `STEP` removes most of them; the sum has extra bits for the rest.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** round to nearest,
    ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every NaN result is the
    quiet NaN with sign 0.

    Parameters
    ----------
    factor_format : FloatFormat
        Format of the factors; a signed IEEE format.
    sum_format : FloatFormat
        Format of addend and result; a signed IEEE format in which every product is exact and
        normal.
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
    a, b : In(factor_format.layout)
        The factors.
    c : In(sum_format.layout)
        The addend.
    result : Out(sum_format.layout)
        The sum.

    Raises
    ------
    ValueError
        If a parameter is illegal, or a product can be inexact or subnormal in the sum's format.
    """

    def __init__(
        self,
        *,
        factor_format: FloatFormat = BINARY16,
        sum_format: FloatFormat = BINARY32,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("factor_format", factor_format)
        require_ieee("sum_format", sum_format)
        require_choice("saturate", saturate, (False, True))
        least = 2 * factor_format.smallest_power + sum_format.bias
        most = 2 * (factor_format.exponent_mask - factor_format.bias) + 1 + sum_format.bias
        require(
            2 * factor_format.significand_bits <= sum_format.significand_bits
            and least >= 1
            and most < sum_format.exponent_mask,
            "every product of two factors must be exact and normal in the sum's format",
            (factor_format, sum_format),
        )
        self.factor_format = factor_format
        self.sum_format = sum_format
        self.saturate = saturate
        factor = factor_format.layout
        wide = sum_format.layout
        members = {"a": In(factor), "b": In(factor), "c": In(wide), "result": Out(wide)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Multiply, align and add, normalise and round."""
        m = Module()
        before_rounding, before_sum = self.stages >= 4, self.stages >= 5
        pipeline = self.pipeline(m, cuts=3 + before_rounding + before_sum)
        a = unpack(m, self.factor_format, self.a, saturate=self.saturate)
        b = unpack(m, self.factor_format, self.b, saturate=self.saturate)
        c = unpack(m, self.sum_format, self.c, saturate=self.saturate)
        # Count the product's leading zeros in steps; the last step of a factor holds its leading
        # one.
        steps = (self.factor_format.significand_bits - 1) // STEP
        empty = Signal(range(2 * steps + 1))
        # Unsigned: a product of narrow factors is always within the wide format's exponent range.
        exponent = Signal(self.sum_format.exponent_bits + 1)
        offset = self.sum_format.bias - 2 * self.factor_format.bias + 1
        m.d.comb += [
            empty.eq(_empty_steps(a.significand, steps) + _empty_steps(b.significand, steps)),
            exponent.eq(a.exponent + b.exponent + offset - (empty * STEP)),
        ]
        order = compare(
            m,
            Term(a.sign ^ b.sign, exponent, a.zero | b.zero),
            Term(c.sign, c.exponent),
            exponent_bits=self.sum_format.exponent_bits + 1,
            distance_bits=self.sum_format.exponent_bits + 1,
        )
        integer = product(m, a.significand, b.significand)
        # One shift of the product replaces a shift of each factor.
        raised = (integer << (empty * STEP))[: len(integer)]
        order, terms, special = cut(
            pipeline,
            order,
            Significands(raised, c.significand),
            NEVER if self.saturate else multiply_add_special(a, b, c),
        )
        # Up to STEP - 1 leading zeros per factor remain; the sum has extra bits for them.
        result = rounded_sum(
            m,
            pipeline,
            order,
            terms,
            special,
            SumForm(
                self.sum_format,
                before_sum,
                before_rounding,
                self.saturate,
                leading=2 * (STEP - 1) + 1,
            ),
        )
        m.d.comb += self.result.eq(result)
        return m


def _empty_steps(significand: Value, steps: int) -> Value:
    """Return the number of whole steps at the top of a significand that are zero."""
    empty = [~significand[-STEP * (step + 1) :].any() for step in range(steps)]
    # A step counts only if all steps above it are empty: each slice spans from the top down.
    total = empty[0]
    for more in empty[1:]:
        total = total + more
    return total
