"""Floating-point addition where no subnormal number can occur."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_cut import cut, sum_special
from hdl.arith.float_format import BINARY32, FloatFormat
from hdl.arith.float_shift import shift_left, shift_right
from hdl.arith.float_sum import Aligned, Term, add, compare
from hdl.arith.float_unpack import Operand, pack, require_ieee, unpack
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator

FINE = 1
"""Levels of the aligning shift that stand in the stage of the sum."""


@dataclass(frozen=True)
class Coarse:
    """Two terms of which the smaller has not moved the last places."""

    sign: Value
    subtract: Value
    exponent: Value
    larger: Value
    smaller: Value
    sticky: Value
    amount: Value


class FloatNormalAdd(Operator):
    """Sum of two floating-point numbers of which neither they nor the sum is ever subnormal.

    So it is with sums of products of narrow numbers in a wide format: all are multiples of one
    power of two that is far above the wide format's subnormal numbers. What is saved is the search
    for the place where these begin, and the zeros can be counted in the stage of the sum.

    **Latency** `stages` cycles. **Throughput** one sum a cycle. **Numerics** round to nearest, ties
    to even; infinities and NaNs by IEEE 754, every NaN being the quiet NaN of sign 0. A subnormal
    operand counts as a zero of its sign; a sum below the normal numbers is outside the contract.

    Parameters
    ----------
    number_format : FloatFormat
        Of operands and result: a signed IEEE format.
    stages : int
        Pipeline stages. One is the result; a second stands behind the sum, a third before the sum.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

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
        a, b = (unpack(m, number_format, code, saturate=False) for code in (self.a, self.b))
        # The alignment is split in two, so that either stage has some of its levels.
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
        total, special = cut(pipeline, add(m, aligned), special)

        count = Signal(range(len(total.magnitude) + 1))
        exponent = Signal(len(total.exponent))
        m.d.comb += [
            # No floor under the count: nothing here is subnormal.
            count.eq(leading_zeros(total.magnitude)),
            exponent.eq(total.exponent + 1 - count),
        ]
        kept = number_format.significand_bits + 1
        shifted, ones, some = shift_left(m, total.magnitude, count, total.missing, kept)
        guard, last, top = shifted[0], shifted[1], shifted[-1]
        behind = total.missing & ones
        code = pack(
            m,
            number_format,
            sign=Mux(special.infinite, special.infinite_sign, total.sign),
            exponent=exponent & top.replicate(len(exponent)),
            mantissa=shifted[1:-1],
            increment=(guard & (total.missing | total.sticky | some | last)) | (behind & last),
            infinite=special.infinite,
            nan=special.nan,
            saturate=False,
        )
        m.d.comb += self.result.eq(pipeline.cut(code)[0])
        return m

    def _coarse(self, m: Module, a: Operand, b: Operand) -> Coarse:
        """Order the terms and move the smaller one by steps of ``2**FINE`` places."""
        bits = self.number_format.exponent_bits + 1
        first, second = Term(a.sign, a.exponent), Term(b.sign, b.exponent)
        order = compare(m, first, second, exponent_bits=bits, distance_bits=bits)
        # Two places behind the significand: the guard and what a cancellation brings up.
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
