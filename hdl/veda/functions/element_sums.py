"""Sum and sum of squares of a vector of FP16 numbers, one a cycle, in fixed point."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.prefix_sum import prefix_sum
from hdl.unit import Unit
from hdl.veda.functions.layernorm_parameters import (
    SQUARE_FRACTION,
    SUM_FRACTION,
    ElementSerialLayernormParameters,
)

DROPPED = 2 * SUM_FRACTION - SQUARE_FRACTION
"""Bits of an exact square below the last one kept."""


class ElementSums(Unit):
    """Add elements and their squares.

    No floating-point adder takes a term in every cycle at 1 GHz; a wide integer does.

    **Latency** 4 cycles from a vector's last element to its sums. **Throughput** one element a
    cycle.

    **Numerics** the sum is exact; a square drops what is below 2**-28, and the squares add exactly.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions.

    Members
    -------
    strobe, element : In
        An element and the end of its vector.
    significand, square : Out, In
        What is squared in the cycle behind an element's, and its square in the same cycle.
    strobe_out, sums : Out
        A vector's sums, for one cycle. An infinity or a NaN makes the vector `undefined`.
    """

    def __init__(self, *, parameters: ElementSerialLayernormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "element": In(parameters.element_layout),
                "significand": Out(11),
                "square": In(22),
                "strobe_out": Out(1),
                "sums": Out(parameters.sums_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Square, align, accumulate; a pipeline stage for each."""
        m = Module()
        p = self.parameters

        # Stage 1: the element. Its significand goes out to the multiplier and comes back squared.
        strobe, element = Signal(), Signal(p.element_layout, reset_less=True)
        m.d.sync += [strobe.eq(self.strobe), element.eq(self.element)]

        # Where there is no element, zero is added.
        value = element.value
        normal = value.exponent.any()
        square = Signal(22, reset_less=True)
        squared, last = Signal(), Signal(reset_less=True)
        shift = Signal(5, reset_less=True)
        special = Signal(reset_less=True)
        m.d.comb += self.significand.eq(Cat(value.mantissa, normal))

        # Stage 2: the square, and by how much twice it is to be shifted.
        m.d.sync += [
            squared.eq(strobe),
            last.eq(element.last & strobe),
            square.eq(self.square & strobe.replicate(22)),
            shift.eq(value.exponent - normal),
            special.eq(value.exponent.all() & strobe),
        ]

        # Stage 3: of an exact square, which has 48 fraction bits, this is what is kept.
        kept = Signal(32 + SQUARE_FRACTION, reset_less=True)
        aligned, ends, spoils = Signal(), Signal(), Signal(reset_less=True)
        m.d.sync += [
            aligned.eq(squared),
            ends.eq(last & squared),
            spoils.eq(special),
            kept.eq((square << Cat(Const(0, 1), shift)) >> DROPPED),
        ]

        # Stage 4: the sums, which stand for one cycle. A vector's first term does not clear a
        # register in a cycle of its own: it masks what is added to. So what comes before a vector,
        # as after a reset, is dropped.
        begins = Signal(init=1)
        continues = ~begins
        squares = Signal(p.square_sum_width, reset_less=True)
        count, undefined = Signal(p.count_width, reset_less=True), Signal(reset_less=True)
        earlier_squares = squares & continues.replicate(len(squares))
        wide = Cat(kept, Const(0, len(squares) - len(kept)))
        m.d.sync += [
            begins.eq(ends | (begins & ~aligned)),
            self.strobe_out.eq(ends),
            squares.eq(prefix_sum(m, earlier_squares, wide)),
            count.eq((count & continues.replicate(len(count))) + aligned),
            undefined.eq((undefined & continues) | spoils),
        ]
        m.d.comb += [
            self.sums.squares.eq(squares),
            self.sums.count.eq(count),
            self.sums.undefined.eq(undefined),
        ]
        if not p.rms:
            self._sum(m, strobe=strobe, sign=value.sign, shift=shift, continues=continues)
        return m

    def _sum(
        self, m: Module, *, strobe: Value, sign: Value, shift: Value, continues: Value
    ) -> None:
        """Add up the elements themselves, in step with their squares."""
        width = self.parameters.sum_width
        significand, is_negative = Signal(11, reset_less=True), Signal(reset_less=True)
        term, negative = Signal(width, reset_less=True), Signal(reset_less=True)
        total = Signal(width, reset_less=True)
        m.d.sync += [
            significand.eq(self.significand & strobe.replicate(11)),
            is_negative.eq(sign),
            # The complement is one too small: below, `negative` is a digit under both operands,
            # whose carry into the lowest bit makes up for it.
            term.eq((significand << shift) ^ is_negative.replicate(width)),
            negative.eq(is_negative),
        ]
        earlier = total & continues.replicate(width)
        m.d.sync += total.eq(prefix_sum(m, Cat(negative, earlier), Cat(negative, term))[1:])
        m.d.comb += self.sums.sum.eq(total)
