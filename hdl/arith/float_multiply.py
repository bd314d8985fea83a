"""Floating-point multiplication."""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product, product_pair
from hdl.arith.float_cut import NEVER, cut, product_special
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_shift import shift_right
from hdl.arith.float_unpack import Inexact, Operand, pack, require_ieee, unpack
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator
from hdl.arith.prefix_sum import prefix_sum
from hdl.parameters import require_choice, require_range
from hdl.target import Target, current_target


@dataclass(frozen=True)
class Unplaced:
    """An integer product, its right-shift distance, and the exponent code after the shift."""

    sign: Value
    exponent: Value
    integer: Value
    amount: Value


class FloatMultiply(Operator):
    """Product of two floating-point numbers, rounded once.

    One shifter serves subnormal operands and subnormal results: the product is aligned for the
    largest left shift that a subnormal operand can need, and is shifted right. The distance depends
    only on the operands, so it is computed in parallel with the multiplication. At most one operand
    needs treatment as a subnormal, since the product of two is less than half the smallest
    subnormal.

    **Latency** `stages` cycles. **Throughput** one product per cycle. **Numerics** round to
    nearest, ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every NaN result
    is the quiet NaN with sign 0.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values, and a result beyond the largest finite number becomes that number.
    extra_bits : int
        Mantissa bits of b below those of its format, 0 to 8; they are 0 where b is subnormal.
    exact : bool
        Add the output `product`.
    stages : int
        Pipeline stages. The first registers the result, the second follows the integer product. The
        third precedes the carry chain of the product, unless the target is an FPGA; the output
        `product` then has a carry chain of its own.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(number_format.layout)
        The first factor.
    b : In(layout)
        The second factor: the format of `a` with `extra_bits` more mantissa bits.
    result : Out(number_format.layout)
        The product.
    product : Out
        Integer product of the significands, combinational from the operands; only with `exact`.

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
        extra_bits: int = 0,
        exact: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_choice("saturate", saturate, (False, True))
        require_range("extra_bits", extra_bits, 0, 8)
        require_choice("exact", exact, (False, True))
        self.number_format = number_format
        self.longer_format = replace(
            number_format, mantissa_bits=number_format.mantissa_bits + extra_bits
        )
        self.saturate = saturate
        self.extra_bits = extra_bits
        self.exact = exact
        layout = number_format.layout
        members = {"a": In(layout), "b": In(self.longer_format.layout), "result": Out(layout)}
        self._product_bits = 2 * number_format.significand_bits + extra_bits
        if exact:
            members["product"] = Out(self._product_bits)
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Multiply, shift, round."""
        m = Module()
        fpga = current_target() is Target.FPGA
        before_carries = self.stages >= 3 and not fpga
        # The cuts after the product and at the result always exist; a third stage adds another.
        pipeline = self.pipeline(m, cuts=2 + before_carries)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.longer_format, self.b, saturate=self.saturate)
        bits = self.number_format.significand_bits
        range_bits = self.number_format.exponent_bits + 2
        unplaced = self._multiply(m, a, b, halves=before_carries)
        special = NEVER if self.saturate else product_special(a, b)
        if before_carries:
            unplaced, special = cut(pipeline, unplaced, special)
            one, two = (unplaced.integer.word_select(i, self._product_bits) for i in range(2))
            integer = prefix_sum(m, one, two)[: self._product_bits]
            unplaced = replace(unplaced, integer=integer)
        unplaced, special = cut(pipeline, unplaced, special)

        # A subnormal operand needs two bits below the last place; the extra bits of b use them too.
        integer = Cat(Const(0, 2), unplaced.integer)
        placed, sticky = shift_right(m, integer[self.extra_bits :], unplaced.amount, bits + 2)
        sticky = sticky | integer[: self.extra_bits].any()
        # The product of two significands in [1, 2) is below 4: its leading one is in one of two
        # places.
        top = placed[-1]
        shifts = ~top & unplaced.exponent.any()
        mantissa = Signal(bits - 1)
        # Shift left by one if the leading one is missing; a subnormal is not shifted.
        guard = Mux(shifts, placed[0], placed[1])
        rest = sticky | (placed[0] & ~shifts)
        code = Signal(range_bits - 1)
        m.d.comb += [
            mantissa.eq(Mux(shifts, placed[1:-2], placed[2:-1])),
            code.eq(unplaced.exponent + top),
        ]
        (result,) = pipeline.cut(
            pack(
                m,
                self.number_format,
                Inexact(
                    sign=unplaced.sign,
                    exponent=code,
                    mantissa=mantissa,
                    increment=guard & (rest | mantissa[0]),
                    infinite=special.infinite,
                    nan=special.nan,
                ),
                saturate=self.saturate,
            )
        )
        m.d.comb += self.result.eq(result)
        return m

    def _multiply(self, m: Module, a: Operand, b: Operand, *, halves: bool) -> Unplaced:
        """Return the integer product, or a carry-save pair of it, and its shift distance."""
        bits = self.number_format.significand_bits
        range_bits = self.number_format.exponent_bits + 2

        # The zeros of only one factor matter: the product of two subnormals underflows.
        counted = Signal(bits)
        zeros = Signal(range(bits + 1))
        weight = Signal(signed(range_bits))
        exponent = Signal(signed(range_bits))
        m.d.comb += [
            counted.eq(Mux(a.significand[-1], b.significand[-bits:], a.significand)),
            zeros.eq(leading_zeros(counted)),
            weight.eq(a.exponent + b.exponent - self.number_format.bias),
            exponent.eq(weight - zeros),
        ]
        # An exponent code below 1 means a subnormal result and determines the shift distance.
        subnormal = exponent[-1]
        # The zero count is computed in parallel with the product and is available before it.
        amount = Mux(subnormal, bits - weight, bits - zeros)[: range_bits - 1]
        shown = exponent[:-1] & ~(subnormal | a.zero | b.zero).replicate(range_bits - 1)
        factors = a.significand, b.significand
        pair = product_pair(m, *factors) if halves else None
        integer = Cat(*pair) if pair else product(m, *factors)
        if self.exact:
            # The carries of `product` are in the stage of the factors, those of the result are not.
            exact = prefix_sum(m, *pair)[: self._product_bits] if pair else integer
            m.d.comb += self.product.eq(exact)
        return Unplaced(a.sign ^ b.sign, shown, integer, amount)
