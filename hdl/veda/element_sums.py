"""Sum and sum of squares of a vector of FP16 numbers, one a cycle, in fixed point."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.prefix_sum import prefix_sum
from hdl.arith.unsigned_multiply import product
from hdl.unit import Unit
from hdl.veda.layernorm_parameters import (
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
    strobe_out, sums : Out
        A vector's sums, for one cycle. An infinity or a NaN makes the vector `undefined`.
    """

    def __init__(self, *, parameters: ElementSerialLayernormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "element": In(parameters.element_layout),
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

        value = element.value
        normal = value.exponent.any()
        significand = Signal(11)
        square = Signal(22, reset_less=True)
        squared, last = Signal(), Signal(reset_less=True)
        shift = Signal(5, reset_less=True)
        special = Signal(reset_less=True)
        m.d.comb += significand.eq(Cat(value.mantissa, normal))
        m.d.sync += [
            squared.eq(strobe),
            last.eq(element.last),
            square.eq(product(m, significand, significand)),
            shift.eq(value.exponent - normal),
            special.eq(value.exponent.all()),
        ]

        # Of an exact square, which has 48 fraction bits, this is what is kept.
        kept = Signal(32 + SQUARE_FRACTION, reset_less=True)
        aligned, ends, spoils = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            aligned.eq(squared),
            ends.eq(last),
            spoils.eq(special),
            kept.eq((square << Cat(Const(0, 1), shift)) >> DROPPED),
        ]

        # What is added to next is cleared behind the adder: that takes no time before it.
        goes_on = ~ends
        squares = Signal(p.square_sum_width)
        count, undefined = Signal(p.count_width), Signal()
        total = Signal(p.square_sum_width)
        counted = Signal(p.count_width)
        wide = Cat(kept, Const(0, len(squares) - len(kept)))
        m.d.comb += [
            total.eq(prefix_sum(m, squares, wide)),
            counted.eq(count + 1),
        ]
        m.d.sync += [
            self.strobe_out.eq(aligned & ends),
            self.sums.squares.eq(total),
            self.sums.count.eq(counted),
            self.sums.undefined.eq(spoils | undefined),
        ]
        with m.If(aligned):
            m.d.sync += [
                squares.eq(total & goes_on.replicate(len(squares))),
                count.eq(counted & goes_on.replicate(len(count))),
                undefined.eq((spoils | undefined) & goes_on),
            ]
        if not p.rms:
            delayed, sign = Signal(11, reset_less=True), Signal(reset_less=True)
            term, negative = Signal(p.sum_width, reset_less=True), Signal(reset_less=True)
            earlier, total_sum = Signal(p.sum_width), Signal(p.sum_width)
            m.d.sync += [
                delayed.eq(significand),
                sign.eq(value.sign),
                # The complement is one too small: the adder makes up for it.
                term.eq((delayed << shift) ^ sign.replicate(p.sum_width)),
                negative.eq(sign),
            ]
            carried = prefix_sum(m, Cat(negative, earlier), Cat(negative, term))
            m.d.comb += total_sum.eq(carried[1:])
            m.d.sync += self.sums.sum.eq(total_sum)
            with m.If(aligned):
                m.d.sync += earlier.eq(total_sum & goes_on.replicate(p.sum_width))
        return m
