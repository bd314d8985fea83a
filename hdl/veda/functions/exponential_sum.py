"""The sum of a head's exponentials, rescaled from tile to tile, and its reciprocal."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.float_format import BINARY16
from hdl.arith.prefix_sum import prefix_sum
from hdl.unit import Unit
from hdl.veda.functions.softmax_parameters import (
    DIVISOR_BITS,
    RECIPROCAL_FRACTION,
    SUM_FRACTION,
    ElementSerialSoftmaxParameters,
)


class ExponentialSum(Unit):
    """Add FP16 exponentials exactly; take up the earlier tiles' sum bit by bit of its factor.

    ``d' = d * exp(m - m') + sum(exp(x - m'))`` over a tile's scores x. While a tile's
    exponentials are added one a cycle, the sum of the tiles before it shifts right, and is added
    wherever its factor has a one. So the multiplication takes no cycle of its own in a tile of
    more than `SUM_FRACTION` elements.

    **Latency** `rescale_cycles` from a tile's first element until its sum holds the earlier ones;
    `reciprocal_cycles` from a complete sum to `strobe_out`. **Throughput** one element a cycle. The
    user keeps the two distances: between a tile's first element and the next tile's first, and
    between a head's sum and the next time that a tile's sum is taken over.

    **Numerics** the sum has `SUM_FRACTION` fraction bits and adds exactly; each one of the factor
    drops what it shifts out of the earlier sum. The reciprocal of the sum's leading `DIVISOR_BITS`
    bits is truncated to `RECIPROCAL_FRACTION` bits and rounded to odd.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions.

    Members
    -------
    strobe : In(1)
        An element is there.
    exponential : In(FP16)
        Its exponential, from 0 to 1; a code from 2 up counts as 0.
    first_of_tile, last : In(1)
        Where the element stands.
    rescale : In(1)
        At a tile's first element: the exponential is the factor, and the element's own is 1.
    strobe_out : Out(1)
        A head's reciprocal is there.
    reciprocal : Out(struct)
        The reciprocal, for the cycle of the strobe.
    """

    rescale_cycles = SUM_FRACTION + 2

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "exponential": In(BINARY16.layout),
                "first_of_tile": In(1),
                "last": In(1),
                "rescale": In(1),
                "strobe_out": Out(1),
                "reciprocal": Out(parameters.reciprocal_layout),
            }
        )

    @staticmethod
    def reciprocal_cycles(parameters: ElementSerialSoftmaxParameters) -> int:
        """Return the cycles from a complete sum to its reciprocal."""
        return parameters.binades + RECIPROCAL_FRACTION + 1

    def elaborate(self, platform: Any) -> Module:
        """Align, accumulate, normalise, divide."""
        m = Module()
        p = self.parameters
        width = p.sum_width

        # Stage 1: the exponential as a multiple of 2**-24, the smallest of FP16. So a sum of any
        # order is the same, and no rounding of an adder enters it.
        code = self.exponential
        normal = code.exponent.any()
        significand = Cat(code.mantissa, normal)
        aligned = (significand << (code.exponent - normal)[:4])[: SUM_FRACTION + 1]
        term = Signal(SUM_FRACTION + 1, reset_less=True)
        strobe, last = Signal(), Signal(reset_less=True)
        first_of_tile, rescale = Signal(reset_less=True), Signal(reset_less=True)
        first_of_head = Signal(init=1)
        m.d.sync += [
            term.eq(aligned & ~code.exponent[4].replicate(SUM_FRACTION + 1)),
            strobe.eq(self.strobe),
            last.eq(self.last),
            first_of_tile.eq(self.first_of_tile),
            rescale.eq(self.rescale),
        ]

        # Stage 2: the sum. `factor` says, bit by bit from the top, where the earlier sum, which
        # shifts right, is added; when it has run out, a sum is complete.
        total = Signal(width, reset_less=True)
        factor = Signal(SUM_FRACTION + 1, reset_less=True)
        closing = Signal()
        complete = closing & ~factor.any()
        one = Const(1 << SUM_FRACTION, SUM_FRACTION + 1)
        addend = Mux(rescale, one, term) & strobe.replicate(SUM_FRACTION + 1)
        starts = strobe & first_of_tile
        earlier = self._earlier(
            m, total, load=complete | (starts & ~first_of_head), divides=complete
        )
        taken = earlier & factor[-1].replicate(width)
        kept = total & ~starts.replicate(width)
        # Three addends in one cycle: a row of full adders leaves two, and one carry chain adds
        # those.
        taken = taken & ~starts.replicate(width)
        total_next = prefix_sum(
            m,
            kept ^ addend ^ taken,
            Cat(Const(0, 1), (addend & taken) | (kept & (addend ^ taken)))[:width],
        )[:width]
        m.d.sync += [total.eq(total_next), factor.eq(factor << 1)]
        with m.If(starts):
            m.d.sync += factor.eq(Mux(first_of_head, 0, Mux(rescale, term, one)))
        with m.If(strobe):
            m.d.sync += first_of_head.eq(last)
        # A head's last tile may still have factor bits to add when its last score is in.
        with m.If(strobe & last):
            m.d.sync += closing.eq(1)
        with m.Elif(complete):
            m.d.sync += closing.eq(0)
        return m

    def _earlier(self, m: Module, total: Signal, *, load: Value, divides: Value) -> Value:
        """Hold a sum that is complete: to be taken up again, shifting right, or to be divided by.

        The two never meet, as a head's first tile takes up nothing. Of a divisor, the highest one
        comes to the top first; then each cycle brings down one digit of its reciprocal.
        """
        p = self.parameters
        digits = RECIPROCAL_FRACTION + 1
        left = Signal(range(p.binades + digits + 1))
        exponent = Signal(5, reset_less=True)
        remainder = Signal(DIVISOR_BITS, reset_less=True)
        quotient = Signal(digits, reset_less=True)
        held = Signal(p.sum_width, reset_less=True)
        # The division's steps count down `left`: `binades` of them shift, the others divide.
        normalises = left > digits
        rest, digit = restoring_step(remainder, Const(0, 1), held[-DIVISOR_BITS:])
        with m.If(normalises & ~held[-1]):
            m.d.sync += exponent.eq(exponent + 1)
        with m.If(normalises):
            # One, as the first row sees it: doubled.
            m.d.sync += remainder.eq(1 << DIVISOR_BITS - 2)
        with m.Elif(left.any()):
            m.d.sync += [remainder.eq(rest), quotient.eq(Cat(digit, quotient))]
        with m.If(divides):
            m.d.sync += [left.eq(p.binades + digits), exponent.eq(BINARY16.bias - 1 - p.binades)]
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)
        # Left to normalise a divisor, right to take up an earlier sum.
        with m.If(load):
            m.d.sync += held.eq(total)
        with m.Elif(normalises & ~held[-1]):
            m.d.sync += held.eq(held << 1)
        with m.Elif(~left.any()):
            m.d.sync += held.eq(held >> 1)
        m.d.sync += self.strobe_out.eq(left == 1)
        m.d.comb += [
            # The reciprocal of a power of two is one, in front of zeros: its exponent is one more.
            # The last digit is the rounding to odd, so that the next rounding is the only one.
            self.reciprocal.mantissa.eq(Cat(quotient[0] | remainder.any(), quotient[1:-2])),
            self.reciprocal.exponent.eq(exponent + quotient[-1]),
        ]
        return held
