"""Sum and sum of squares of a vector of FP16 numbers, one a cycle, in fixed point."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal
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
        """Square, align, accumulate; a rank behind each."""
        m = Module()
        p = self.parameters
        strobe, element = Signal(), Signal(p.element_layout, reset_less=True)
        m.d.sync += [strobe.eq(self.strobe), element.eq(self.element)]

        # Where there is no element, zero is added.
        value = element.value
        normal = value.exponent.any()
        square = Signal(22, reset_less=True)
        squared, last = Signal(), Signal(reset_less=True)
        shift = Signal(5, reset_less=True)
        special = Signal(reset_less=True)
        m.d.comb += [
            self.significand.eq(Cat(value.mantissa, normal)),
        ]
        m.d.sync += [
            squared.eq(strobe),
            last.eq(element.last & strobe),
            square.eq(self.square & strobe.replicate(22)),
            shift.eq(value.exponent - normal),
            special.eq(value.exponent.all() & strobe),
        ]

        # Of an exact square, which has 48 fraction bits, this is what is kept.
        kept = Signal(32 + SQUARE_FRACTION, reset_less=True)
        aligned, ends, spoils = Signal(), Signal(), Signal(reset_less=True)
        m.d.sync += [
            aligned.eq(squared),
            ends.eq(last & squared),
            spoils.eq(special),
            kept.eq((square << Cat(Const(0, 1), shift)) >> DROPPED),
        ]

        # The sums stand for one cycle. What comes before a vector, as after a reset, is dropped.
        begins = Signal(init=1)
        goes_on = ~begins
        squares = Signal(p.square_sum_width, reset_less=True)
        count, undefined = Signal(p.count_width, reset_less=True), Signal(reset_less=True)
        earlier_squares = squares & goes_on.replicate(len(squares))
        wide = Cat(kept, Const(0, len(squares) - len(kept)))
        m.d.sync += [
            begins.eq(ends | (begins & ~aligned)),
            self.strobe_out.eq(ends),
            squares.eq(prefix_sum(m, earlier_squares, wide)),
            count.eq((count & goes_on.replicate(len(count))) + aligned),
            undefined.eq((undefined & goes_on) | spoils),
        ]
        m.d.comb += [
            self.sums.squares.eq(squares),
            self.sums.count.eq(count),
            self.sums.undefined.eq(undefined),
        ]
        if not p.rms:
            delayed, sign = Signal(11, reset_less=True), Signal(reset_less=True)
            term, negative = Signal(p.sum_width, reset_less=True), Signal(reset_less=True)
            total = Signal(p.sum_width, reset_less=True)
            m.d.sync += [
                delayed.eq(self.significand & strobe.replicate(11)),
                sign.eq(value.sign),
                # The complement is one too small: the adder makes up for it.
                term.eq((delayed << shift) ^ sign.replicate(p.sum_width)),
                negative.eq(sign),
            ]
            earlier = total & goes_on.replicate(p.sum_width)
            m.d.sync += total.eq(prefix_sum(m, Cat(negative, earlier), Cat(negative, term))[1:])
            m.d.comb += self.sums.sum.eq(total)
        return m
