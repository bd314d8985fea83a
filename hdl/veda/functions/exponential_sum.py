"""The sum of a head's exponentials, rescaled by shifts as the maximum rises; its reciprocal."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.float_format import BINARY16
from hdl.arith.prefix_sum import prefix_sum
from hdl.unit import Unit
from hdl.veda.functions.softmax_parameters import (
    DISTANCE_BITS,
    DIVISOR_BITS,
    ONE,
    RECIPROCAL_FRACTION,
    SUM_FRACTION,
    ElementSerialSoftmaxParameters,
)


class ExponentialSum(Unit):
    """Accumulate exponentials in units of the largest power of two so far; compute the reciprocal.

    If the power of two rises by r, ``d' = (d >> r) + term``; otherwise ``d' = d + term``: one shift
    and one addition per cycle, without a multiplication.

    **Latency** ``division_cycles + 3`` from a head's last exponential to `strobe_out`.
    **Throughput** one exponential per cycle. The source keeps the ends of heads at least
    `division_cycles` + 1 cycles apart.

    **Numerics** the sum has `SUM_FRACTION` fraction bits; terms and shifted sums are truncated
    below them. The reciprocal of the sum's leading `DIVISOR_BITS` bits is truncated to
    `RECIPROCAL_FRACTION` bits and rounded to odd.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions of the softmax.

    Members
    -------
    strobe : In(1)
        `exponential` is valid.
    exponential : In(struct)
        Its mantissa, its distance from the largest power of two so far, and whether it is above
        that. A head's first exponential rises by `FAR`.
    last, undefined : In(1)
        It is its head's last; and, valid with it, whether the head has no softmax.
    strobe_out : Out(1)
        `reciprocal` is valid.
    reciprocal : Out(struct)
        The reciprocal of a head's sum.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "exponential": In(parameters.exponential_layout),
                "last": In(1),
                "undefined": In(1),
                "strobe_out": Out(1),
                "reciprocal": Out(parameters.reciprocal_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Align, accumulate, divide."""
        m = Module()
        p = self.parameters

        # Stage 1: align the exponential by its distance; one that rises is at the highest position.
        code = self.exponential
        # The leading one is the top bit, followed by the fraction.
        spare = SUM_FRACTION - BINARY16.mantissa_bits
        significand = Cat(Const(0, spare), code.mantissa, Const(1, 1))
        falls, rises = self.strobe & ~code.rises, self.strobe & code.rises
        term = Signal(SUM_FRACTION + 1, reset_less=True)
        rise, undefined = Signal(DISTANCE_BITS), Signal(reset_less=True)
        last = Signal()
        aligned = significand >> (code.distance & falls.replicate(DISTANCE_BITS))
        m.d.sync += [
            term.eq(aligned & self.strobe.replicate(SUM_FRACTION + 1)),
            rise.eq(code.distance & rises.replicate(DISTANCE_BITS)),
            last.eq(self.strobe & self.last),
            undefined.eq(self.undefined),
        ]

        # Stage 2: the sum. The previous sum is shifted right by the rise of the power of two.
        total = Signal(p.sum_width, reset_less=True)
        kept = Signal(p.sum_width)
        m.d.comb += kept.eq((total >> rise) & ~rise.all().replicate(p.sum_width))
        m.d.sync += total.eq(prefix_sum(m, kept, Cat(term, Const(0, p.binades)))[: p.sum_width])

        # Total rise of the power of two since the head began.
        risen = Signal(p.scale_shape.width - 1)
        complete, spoilt = Signal(), Signal(reset_less=True)
        m.d.sync += [
            risen.eq(Mux(complete, 0, risen) + rise),
            complete.eq(last),
            spoilt.eq(undefined),
        ]
        self._divide(m, complete, total, risen, spoilt)
        return m

    def _divide(self, m: Module, begins: Value, total: Value, risen: Value, spoilt: Value) -> None:
        """Shift the leading one of a sum to the top, then compute a reciprocal digit per cycle."""
        p = self.parameters
        digits = RECIPROCAL_FRACTION + 1
        left = Signal(range(p.division_cycles + 1))
        scale = Signal(p.scale_shape, reset_less=True)
        undefined = Signal(reset_less=True)
        remainder = Signal(DIVISOR_BITS, reset_less=True)
        quotient = Signal(digits, reset_less=True)
        held = Signal(p.sum_width, reset_less=True)
        # `left` counts the steps down: the first `binades` of them shift, the others divide.
        normalises = left > digits
        rest, digit = restoring_step(remainder, Const(0, 1), held[-DIVISOR_BITS:])
        with m.If(begins):
            m.d.sync += [
                held.eq(total),
                # Scale for the maximum sum, lowered by the rise of the power of two within the
                # head.
                scale.eq(ONE - 1 - p.binades - risen),
                undefined.eq(spoilt),
                left.eq(p.division_cycles),
            ]
        with m.Else():
            with m.If(normalises & ~held[-1]):
                m.d.sync += [held.eq(held << 1), scale.eq(scale + 1)]
            with m.If(left.any()):
                m.d.sync += left.eq(left - 1)
        with m.If(normalises):
            # The dividend one, doubled for the first row of the division.
            m.d.sync += remainder.eq(1 << DIVISOR_BITS - 2)
        with m.Elif(left.any()):
            m.d.sync += [remainder.eq(rest), quotient.eq(Cat(digit, quotient))]
        m.d.sync += self.strobe_out.eq(left == 1)
        m.d.comb += [
            # The reciprocal of a power of two is one, followed by zeros: its exponent is higher by
            # one. The last digit is rounded to odd, so that the multiplier's rounding is correct.
            self.reciprocal.mantissa.eq(Cat(quotient[0] | remainder.any(), quotient[1:-2])),
            self.reciprocal.scale.eq(scale + quotient[-1]),
            self.reciprocal.undefined.eq(undefined),
        ]
