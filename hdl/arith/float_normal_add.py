"""Floating-point addition without support for subnormal numbers."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_cut import cut, sum_special
from hdl.arith.float_format import BINARY32, FloatFormat
from hdl.arith.float_shift import shift_left, shift_right
from hdl.arith.float_sum import Aligned, Term, add, compare
from hdl.arith.float_unpack import Inexact, Operand, pack, require_ieee, unpack
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator

FINE = 1
"""Levels of the aligning shift in the stage of the sum."""


@dataclass(frozen=True)
class Coarse:
    """Two terms after the coarse part of the aligning shift."""

    sign: Value
    subtract: Value
    exponent: Value
    larger: Value
    smaller: Value
    sticky: Value
    amount: Value


@dataclass(frozen=True)
class Zero:
    """The sign that the sum has if it is an exact zero."""

    sign: Value


class FloatNormalAdd(Operator):
    """Sum of two floating-point numbers, where operands and sum are never subnormal.

    Sums of products of narrow numbers in a wide format have this property: all are multiples of a
    power of two far above the wide format's subnormals. The adder saves the detection of subnormal
    results and can count leading zeros in the stage of the sum.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** round to nearest,
    ties to even; infinities and NaNs by IEEE 754, every NaN result is the quiet NaN with sign 0. A
    subnormal operand counts as a zero of its sign. A sum below the normal numbers is outside the
    contract.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    stages : int
        Pipeline stages. The first registers the result, the second follows the sum, the third
        precedes the sum.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    result : Out(number_format.layout)
        The sum.

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
        """Align, add and count, shift and round."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        number_format = self.number_format
        a, b = (
            unpack(m, number_format, code, saturate=False, subnormals=False)
            for code in (self.a, self.b)
        )
        # The alignment is split, so that each of two stages contains some of its levels.
        coarse, special = cut(pipeline, self._coarse(m, a, b), sum_special(a, b))

        smaller, lost = shift_right(m, coarse.smaller, coarse.amount, len(coarse.smaller))
        aligned = Aligned(
            sign=coarse.sign,
            subtract=coarse.subtract,
            exponent=coarse.exponent,
            larger=coarse.larger,
            smaller=smaller,
            sticky=coarse.sticky | lost,
        )
        # The normalising shift detects an exact zero with less logic than `add`. A cancellation
        # gives +0, whatever the signs.
        raw, _nothing = add(m, aligned)
        zero = Zero(aligned.sign & ~aligned.subtract)
        total, zero, special = cut(pipeline, raw, zero, special)

        count = Signal(range(len(total.magnitude) + 1))
        exponent = Signal(len(total.exponent))
        m.d.comb += [
            # The count has no lower limit: no result is subnormal.
            count.eq(leading_zeros(total.magnitude)),
            exponent.eq(total.exponent + 1 - count),
        ]
        kept = number_format.significand_bits + 1
        shifted, ones, some = shift_left(m, total.magnitude, count, total.missing, kept)
        guard, last, top = shifted[0], shifted[1], shifted[-1]
        carried = total.missing & ones
        code = pack(
            m,
            number_format,
            Inexact(
                # An infinity has the sign of the term with the larger exponent, as any other sum.
                sign=Mux(top, total.sign, zero.sign),
                exponent=exponent & top.replicate(len(exponent)),
                mantissa=shifted[1:-1],
                increment=(guard & (total.missing | total.sticky | some | last)) | (carried & last),
                infinite=special.infinite,
                nan=special.nan,
            ),
            saturate=False,
        )
        m.d.comb += self.result.eq(pipeline.cut(code)[0])
        return m

    def _coarse(self, m: Module, a: Operand, b: Operand) -> Coarse:
        """Order the terms and shift the smaller one by multiples of ``2**FINE`` bits."""
        bits = self.number_format.exponent_bits + 1
        first, second = Term(a.sign, a.exponent), Term(b.sign, b.exponent)
        order = compare(m, first, second, exponent_bits=bits, distance_bits=bits)
        # Two bits below the significand: the guard bit, and one that a cancellation shifts up.
        one, two = (Cat(Const(0, 2), term.significand) for term in (a, b))
        near, larger = Signal(len(one)), Signal(len(one))
        m.d.comb += [
            near.eq(Mux(order.ahead, two >> 1, one)),
            larger.eq(Mux(order.ahead, one, two)),
        ]
        steps = Cat(Const(0, FINE), order.amount[FINE:])
        smaller, lost = shift_right(m, near, steps, len(near))
        return Coarse(
            sign=order.sign,
            subtract=order.subtract,
            exponent=order.exponent,
            larger=larger,
            smaller=smaller,
            sticky=lost,
            amount=order.amount[:FINE],
        )
