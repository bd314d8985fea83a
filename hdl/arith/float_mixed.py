"""Fused multiply-add of narrow factors and a wide addend."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product
from hdl.arith.float_cut import NEVER, cut, multiply_add_special
from hdl.arith.float_format import BINARY16, BINARY32, FloatFormat
from hdl.arith.float_sum import Significands, Term, compare, rounded_sum
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require, require_choice

STEP = 4
"""Leading zeros of subnormal factors are taken away in steps of so many, a power of two."""


class FloatMixed(Operator):
    """``a * b + c`` with factors of a narrow and addend and result of a wide format, rounded once.

    The product is exact in the wide format. Subnormal factors leave zeros above its leading one;
    coarse steps take most of them away, and the sum keeps as many bits more as may remain.

    **Latency** `stages` cycles. **Throughput** one result a cycle. **Numerics** round to nearest,
    ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every NaN being the quiet
    NaN of sign 0.

    Parameters
    ----------
    factor_format : FloatFormat
        Of the factors: a signed IEEE format.
    sum_format : FloatFormat
        Of addend and result: a signed IEEE format in which every product is exact and normal.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code is the number it would be
        in a format without special values, and a result beyond the largest finite number gives
        that number.
    stages : int
        Pipeline stages. One is the result; a second stands behind the sum, a third behind the
        integer product, a fourth before the rounding, a fifth before the sum.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

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
        If a parameter is illegal or a product need not be exact and normal in the sum's format.
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
        # Leading zeros of the product, in steps; the last step of a factor holds its leading one.
        steps = (self.factor_format.significand_bits - 1) // STEP
        empty = Signal(range(2 * steps + 1))
        # No sign: a product of narrow factors never lies below the wide format's range.
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
        # The product is shifted, once, rather than either factor before it.
        raised = (integer << (empty * STEP))[: len(integer)]
        order, terms, special = cut(
            pipeline,
            order,
            Significands(raised, c.significand),
            NEVER if self.saturate else multiply_add_special(a, b, c),
        )
        # Steps leave up to STEP - 1 zeros a factor, so that the sum keeps as many bits in front.
        result = rounded_sum(
            m,
            pipeline,
            self.sum_format,
            order,
            terms,
            special,
            leading=2 * (STEP - 1) + 1,
            before_sum=before_sum,
            before_rounding=before_rounding,
            saturate=self.saturate,
        )
        m.d.comb += self.result.eq(result)
        return m


def _empty_steps(significand: Value, steps: int) -> Value:
    """Return how many whole steps at the top of a significand are zeros."""
    empty = [~significand[-STEP * (step + 1) :].any() for step in range(steps)]
    # Each counts only if all above it are empty, which `any` from the top down says.
    total = empty[0]
    for more in empty[1:]:
        total = total + more
    return total
