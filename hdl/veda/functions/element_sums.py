"""Sum and sum of squares of a vector of FP16 numbers, one per cycle, in fixed point."""

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
"""Bits of an exact square below the least significant bit kept."""


class ElementSums(Unit):
    """Accumulate elements and their squares.

    Integer accumulation: no floating-point adder accepts a dependent term in every cycle at 1 GHz.

    **Latency** 4 cycles from a vector's last element to its sums. **Throughput** one element per
    cycle.

    **Numerics** the sum is exact; each square is truncated below 2**-28, and squares are added
    exactly.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions of the layernorm.

    Members
    -------
    strobe, element : In
        An element and its vector's end, valid with `strobe`.
    significand, square : Out, In
        The significand to square, in the cycle after its element, and its square in the same cycle.
    strobe_out, sums : Out
        A vector's sums, valid with `strobe_out`. An infinity or a NaN makes the vector `undefined`.
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

    def elaborate(self, platform: object) -> Module:
        """Square, align, accumulate; one pipeline stage for each."""
        m = Module()
        p = self.parameters

        # Stage 1: the element. The multiplier outside squares its significand in the same cycle.
        strobe, element = Signal(), Signal(p.element_layout, reset_less=True)
        m.d.sync += [strobe.eq(self.strobe), element.eq(self.element)]

        # Without a valid element, zero is added.
        value = element.value
        normal = value.exponent.any()
        square = Signal(22, reset_less=True)
        squared, last = Signal(), Signal(reset_less=True)
        shift = Signal(5, reset_less=True)
        special = Signal(reset_less=True)
        m.d.comb += self.significand.eq(Cat(value.mantissa, normal))

        # Stage 2: the square; the left shift is twice `shift`.
        m.d.sync += [
            squared.eq(strobe),
            last.eq(element.last & strobe),
            square.eq(self.square & strobe.replicate(22)),
            shift.eq(value.exponent - normal),
            special.eq(value.exponent.all() & strobe),
        ]

        # Stage 3: the bits kept of an exact square, which has 48 fraction bits.
        kept = Signal(32 + SQUARE_FRACTION, reset_less=True)
        aligned, ends, spoils = Signal(), Signal(), Signal(reset_less=True)
        m.d.sync += [
            aligned.eq(squared),
            ends.eq(last & squared),
            spoils.eq(special),
            kept.eq((square << Cat(Const(0, 1), shift)) >> DROPPED),
        ]

        # Stage 4: the sums, valid for one cycle. A vector's first term masks the previous sum, so
        # no cycle is spent on clearing it; any terms before a vector, as after reset, are
        # discarded.
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
        """Accumulate the elements themselves, in parallel with their squares."""
        width = self.parameters.sum_width
        significand, is_negative = Signal(11, reset_less=True), Signal(reset_less=True)
        term, negative = Signal(width, reset_less=True), Signal(reset_less=True)
        total = Signal(width, reset_less=True)
        m.d.sync += [
            significand.eq(self.significand & strobe.replicate(11)),
            is_negative.eq(sign),
            # The complement is too small by one. Both operands have `negative` as an extra lowest
            # bit, whose carry into the sum adds the one.
            term.eq((significand << shift) ^ is_negative.replicate(width)),
            negative.eq(is_negative),
        ]
        earlier = total & continues.replicate(width)
        m.d.sync += total.eq(prefix_sum(m, Cat(negative, earlier), Cat(negative, term))[1:])
        m.d.comb += self.sums.sum.eq(total)
