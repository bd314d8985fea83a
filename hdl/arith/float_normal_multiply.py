"""Floating-point multiplication without support for subnormal numbers."""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product, product_pair
from hdl.arith.float_cut import cut, product_special
from hdl.arith.float_format import BINARY32, FloatFormat
from hdl.arith.float_unpack import Inexact, Operand, pack, require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.arith.prefix_sum import prefix_sum
from hdl.target import Target, current_target


@dataclass(frozen=True)
class Unrounded:
    """An integer product of significands, and its exponent code if it is below 2."""

    sign: Value
    zero: Value
    exponent: Value
    integer: Value


class FloatNormalMultiply(Operator):
    """Product of two floating-point numbers, where operands and product are never subnormal.

    Narrow numbers, and products of a few of them, in a wide format have this property. The
    multiplier saves the normalisation of subnormal operands and the shifter for subnormal products:
    a product is shifted left by at most one bit.

    **Latency** `stages` cycles. **Throughput** one product per cycle. **Numerics** round to
    nearest, ties to even; infinities and NaNs by IEEE 754, every NaN result is the quiet NaN with
    sign 0. Subnormal operands, and a product below the normal numbers, are outside the contract.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    stages : int
        Pipeline stages. The first registers the result, the second follows the integer product. The
        third precedes the carry chain of the product, unless the target is an FPGA.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    result : Out(number_format.layout)
        The product.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self, *, number_format: FloatFormat = BINARY32, stages: int = 0, enable: bool = False
    ) -> None:
        require_ieee("number_format", number_format)
        self.number_format = number_format
        layout = number_format.layout
        super().__init__(
            {"a": In(layout), "b": In(layout), "result": Out(layout)}, stages=stages, enable=enable
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply, align the leading one, round."""
        m = Module()
        bits = self.number_format.significand_bits
        before_carries = self.stages >= 3 and current_target() is not Target.FPGA
        pipeline = self.pipeline(m, cuts=2 + before_carries)
        a, b = (unpack(m, self.number_format, code, saturate=False) for code in (self.a, self.b))
        unrounded, special = self._multiply(m, a, b, halves=before_carries), product_special(a, b)
        if before_carries:
            unrounded, special = cut(pipeline, unrounded, special)
            one, two = (unrounded.integer.word_select(i, 2 * bits) for i in range(2))
            integer = prefix_sum(m, one, two)[: 2 * bits]
            unrounded = replace(unrounded, integer=integer)
        unrounded, special = cut(pipeline, unrounded, special)

        # The product of two significands in [1, 2) is below 4: its leading one is in one of two
        # places.
        top = unrounded.integer[-1]
        digits = Mux(top, unrounded.integer, Cat(Const(0, 1), unrounded.integer))[: 2 * bits - 1]
        rest, guard, mantissa = digits[: bits - 1].any(), digits[bits - 1], digits[bits:]
        exponent = Signal(len(unrounded.exponent))
        m.d.comb += exponent.eq(unrounded.exponent + top)
        code = pack(
            m,
            self.number_format,
            Inexact(
                sign=unrounded.sign,
                # The significand of a zero is all zeros, but its exponent must be cleared.
                exponent=exponent & ~unrounded.zero.replicate(len(exponent)),
                mantissa=mantissa,
                increment=guard & (rest | mantissa[0]),
                infinite=special.infinite,
                nan=special.nan,
            ),
            saturate=False,
        )
        m.d.comb += self.result.eq(pipeline.cut(code)[0])
        return m

    def _multiply(self, m: Module, a: Operand, b: Operand, *, halves: bool) -> Unrounded:
        """Return the integer product, or a carry-save pair of it, and its exponent."""
        factors = a.significand, b.significand
        exponent = Signal(self.number_format.exponent_bits + 1)
        m.d.comb += exponent.eq(a.exponent + b.exponent - self.number_format.bias)
        integer = Cat(*product_pair(m, *factors)) if halves else product(m, *factors)
        return Unrounded(a.sign ^ b.sign, a.zero | b.zero, exponent, integer)
