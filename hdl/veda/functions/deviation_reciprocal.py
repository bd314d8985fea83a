"""Mean and reciprocal standard deviation from a vector's sums, one digit a cycle."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.prefix_sum import incremented, prefix_sum
from hdl.arith.serial_square_root import root_step
from hdl.unit import Unit
from hdl.veda.functions.layernorm_parameters import (
    EPSILON,
    SQUARE_FRACTION,
    SUM_FRACTION,
    ElementSerialLayernormParameters,
)

ROOT_DIGITS = 16
"""Digits of a square root, the leading one included."""

QUOTIENT_DIGITS = 15
"""Digits of its reciprocal, the one of weight 1 included."""


class DeviationReciprocal(Unit):
    """``mean = sum / n`` and ``scale = 1 / sqrt(squares / n - mean**2 + 1e-5)``.

    Once a vector, so every step is serial: dividing by n, squaring the mean, taking the root and
    its reciprocal all work on one or two registers.

    **Latency** and time for a vector: `cycles` at most.

    **Numerics** the mean is divided with 24 fraction bits, downwards in magnitude, and rounded to
    FP16; the mean of squares has 28 fraction bits, downwards; the variance is at least 0. The root
    has 16 digits, and the reciprocal of it 14 fraction bits before it is rounded to FP16.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions.

    Members
    -------
    strobe, sums : In
        A complete vector's sums.
    strobe_out, scale, undefined : Out
        The outcome, for one cycle; the scale of an undefined vector is a NaN.
    """

    def __init__(self, *, parameters: ElementSerialLayernormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "sums": In(parameters.sums_layout),
                "strobe_out": Out(1),
                "scale": Out(parameters.scale_layout),
                "undefined": Out(1),
            }
        )
        # The mean's square is built in the register that the squares are divided in.
        self.width = parameters.square_sum_width
        if not parameters.rms:
            self.width = max(self.width, 2 * parameters.mean_width + 2)
        self.width += self.width % 2

    @staticmethod
    def cycles(parameters: ElementSerialLayernormParameters) -> int:
        """Return the cycles from the sums of a vector to its scale, at most."""
        p = parameters
        pairs = DeviationReciprocal(parameters=p).width // 2
        leading = (EPSILON.bit_length() + 1) // 2
        common = p.square_sum_width + 1 + pairs - leading + 1 + ROOT_DIGITS + QUOTIENT_DIGITS + 1
        return common + (0 if p.rms else p.sum_width + p.mean_width + p.mean_width - 9)

    def elaborate(self, platform: Any) -> Module:
        """Sequence the steps."""
        m = Module()
        p = self.parameters
        width = self.width
        work = Signal(width, reset_less=True)
        # By the number of elements, then by the root of what that gives.
        divisor = Signal(max(p.count_width, ROOT_DIGITS), reset_less=True)
        remainder = Signal(max(p.count_width, ROOT_DIGITS + 1), reset_less=True)
        steps = Signal(range(width + 1), reset_less=True)
        places = Signal(range(width // 2 + 1), reset_less=True)
        undefined = Signal(reset_less=True)
        # First the vector's sum, then the mean of its squares.
        other = Signal(max(p.sum_width, 32 + SQUARE_FRACTION), reset_less=True)
        negative = Signal(reset_less=True)
        done = steps == 1
        m.d.comb += self.undefined.eq(undefined)
        m.d.sync += steps.eq(steps - 1)

        dividend = Signal()
        m.d.comb += dividend.eq(work[-1])
        rest, digit = restoring_step(remainder[: len(divisor)], dividend, divisor)
        epsilon = Const(EPSILON, width)
        divide = [work.eq(Cat(digit, work)), remainder.eq(rest)]

        def load(numerator: Value) -> list[Any]:
            digits = len(numerator)
            aligned = Cat(Const(0, width - digits), numerator)
            return [work.eq(aligned), remainder.eq(0), steps.eq(digits)]

        with m.FSM(init="IDLE"):
            with m.State("IDLE"):
                with m.If(self.strobe):
                    m.d.sync += [divisor.eq(self.sums.count), undefined.eq(self.sums.undefined)]
                    m.d.sync += load(self.sums.squares)
                    if not p.rms:
                        m.d.sync += [other.eq(self.sums.sum), negative.eq(self.sums.sum[-1])]
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):
                m.d.sync += divide
                with m.If(done):
                    m.next = "ADD_EPSILON" if p.rms else "EXCHANGE"
            if not p.rms:
                self._mean(m, work, other, negative, divide=divide, load=load, steps=steps)
            with m.State("ADD_EPSILON"):
                m.d.sync += [work.eq(prefix_sum(m, work, epsilon)), places.eq(0)]
                m.next = "NORMALISE"
            with m.State("NORMALISE"):
                m.d.sync += [remainder.eq(0), divisor.eq(0), steps.eq(ROOT_DIGITS)]
                with m.If(work[-2:].any()):
                    m.next = "ROOT"
                with m.Else():
                    m.d.sync += [work.eq(work << 2), places.eq(places + 1)]
            with m.State("ROOT"):
                root = divisor[:ROOT_DIGITS]
                left, one = root_step(remainder[: ROOT_DIGITS + 1], work[-2:], root)
                m.d.sync += [
                    work.eq(work << 2),
                    divisor.eq(Cat(one, root)),
                    remainder.eq(left),
                ]
                with m.If(done):
                    # One, as the reciprocal's first row sees it: doubled.
                    m.d.sync += [
                        remainder.eq(1 << ROOT_DIGITS - 2),
                        steps.eq(QUOTIENT_DIGITS),
                    ]
                    m.next = "RECIPROCAL"
            with m.State("RECIPROCAL"):
                m.d.comb += dividend.eq(0)
                m.d.sync += divide
                with m.If(done):
                    m.next = "ROUND"
            with m.State("ROUND"):
                m.d.comb += self.strobe_out.eq(1)
                m.next = "IDLE"
        inexact = remainder[:ROOT_DIGITS].any()
        scale = self._rounded(m, work[:QUOTIENT_DIGITS], inexact, places)
        m.d.comb += Value.cast(self.scale.scale).eq(
            scale | Cat(Const(0, 9), undefined.replicate(6))
        )
        return m

    def _mean(
        self,
        m: Module,
        work: Signal,
        other: Signal,
        negative: Signal,
        *,
        divide: list[Any],
        load: Any,
        steps: Signal,
    ) -> None:
        """Divide the sum, square the quotient, subtract it, round it to FP16."""
        p = self.parameters
        average = Signal(p.mean_width, reset_less=True)
        exponent = Signal(5, reset_less=True)
        guard, sticky = Signal(reset_less=True), Signal(reset_less=True)
        done = steps == 1
        with m.State("EXCHANGE"):
            complement = other ^ negative.replicate(len(other))
            magnitude = incremented(m, complement, negative)[: p.sum_width - 1]
            m.d.sync += [*load(magnitude), other.eq(work)]
            m.next = "MEAN"
        with m.State("MEAN"):
            m.d.sync += divide
            with m.If(done):
                m.next = "HOLD"
        with m.State("HOLD"):
            m.d.sync += [average.eq(work), exponent.eq(0), guard.eq(0), sticky.eq(0)]
            m.d.sync += steps.eq(p.mean_width)
            m.next = "SQUARE"
        with m.State("SQUARE"):
            # The multiplier leaves at the bottom while the product enters above it.
            addend = average & work[0].replicate(p.mean_width)
            upper = prefix_sum(m, work[p.mean_width : 2 * p.mean_width], addend)
            m.d.sync += work.eq(Cat(work[1 : p.mean_width], upper))
            with m.If(done):
                m.next = "SUBTRACT"
        with m.State("SUBTRACT"):
            # a - b is the complement of ~a + b, which has a carry where it is negative.
            square = work[2 * SUM_FRACTION - SQUARE_FRACTION : 2 * p.mean_width]
            wide = Cat(~other, Const(-1, len(square)))[: len(square)]
            difference = prefix_sum(m, wide, square)
            variance = ~difference[: 32 + SQUARE_FRACTION]
            m.d.sync += work.eq(variance & ~difference[-1].replicate(len(variance)))
            m.next = "ROUND_MEAN"
        with m.State("ROUND_MEAN"):
            with m.If(average[11:].any()):
                m.d.sync += [
                    average.eq(average >> 1),
                    exponent.eq(exponent + 1),
                    guard.eq(average[0]),
                    sticky.eq(sticky | guard),
                ]
            with m.Else():
                m.next = "ADD_EPSILON"
        up = guard & (sticky | average[0])
        code = (Cat(Const(0, 10), exponent) + average[:11] + up)[:15]
        m.d.comb += Value.cast(self.scale.mean).eq(Cat(code, negative))

    def _rounded(self, m: Module, quotient: Value, inexact: Value, places: Value) -> Value:
        """Return the reciprocal of the root as an FP16 code.

        The root is that of `work` with two bits above the point, of which `places` pairs of zeros
        have been taken away.
        """
        above = Signal(range(-64, 64))
        m.d.comb += above.eq(places + SQUARE_FRACTION - self.width // 2)
        subnormal = above[-1]
        shifted = Cat(Const(0, 8), quotient) >> Mux(subnormal, -above, 0)[:3]
        kept, guard = shifted[11:], shifted[10]
        up = guard & (kept[0] | shifted[:10].any() | inexact)
        # The leading one adds one to the exponent code of a normal number.
        code = Mux(subnormal, 0, above)[:5]
        return (Cat(Const(0, 10), code) + kept + up)[:16]
