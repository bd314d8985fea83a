"""Mean and reciprocal standard deviation of a vector, from its sums, one digit per cycle."""

from dataclasses import dataclass

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
"""Digits of its reciprocal, including the one of weight 1."""


@dataclass(frozen=True)
class _Divided:
    """The registers of a division after one more digit.

    Parameters
    ----------
    number : Value
        Dividend and quotient.
    remainder : Value
        Remainder.
    """

    number: Value
    remainder: Value


@dataclass(frozen=True)
class _Registers:
    """Registers that all steps use, one step at a time.

    Parameters
    ----------
    number : Signal
        The operand that is divided, squared or rooted, and then the result.
    divisor : Signal
        The number of elements; then the root of the variance.
    remainder : Signal
        Partial remainder of the division or of the root.
    steps : Signal
        Digits that remain, this one included.
    pairs : Signal
        Pairs of leading zeros removed before the root.
    other : Signal
        First the vector's sum, then the mean of its squares.
    negative : Signal
        Sign of the sum.
    """

    number: Signal
    divisor: Signal
    remainder: Signal
    steps: Signal
    pairs: Signal
    other: Signal
    negative: Signal

    @property
    def done(self) -> Value:
        """Whether this is the last digit."""
        return self.steps == 1

    def load(self, m: Module, numerator: Value) -> None:
        """Start a division: numerator at the top, one step per bit."""
        zeros = Const(0, len(self.number) - len(numerator))
        m.d.sync += [
            self.number.eq(Cat(zeros, numerator)),
            self.remainder.eq(0),
            self.steps.eq(len(numerator)),
        ]

    def step(self, m: Module, divided: _Divided) -> None:
        """Take over a digit of a division."""
        m.d.sync += [self.number.eq(divided.number), self.remainder.eq(divided.remainder)]


class DeviationReciprocal(Unit):
    """Compute ``mean = sum / n`` and ``scale = 1 / sqrt(squares / n - mean**2 + 1e-5)``.

    Runs once per vector, so every step is serial: the divisions by n, the square of the mean, the
    root and its reciprocal share the same few registers.

    **Latency** and interval: at most `cycles` per vector.

    **Numerics** the mean has 24 fraction bits, truncated toward zero, and is rounded to FP16. The
    mean of squares has 28 fraction bits, truncated. The variance is at least 0. The root has 16
    digits, and its reciprocal 14 fraction bits before it is rounded to FP16.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions of the layernorm.

    Members
    -------
    strobe, sums : In
        The sums of a complete vector, valid with `strobe`.
    strobe_out, scale, undefined : Out
        The result, valid with `strobe_out`; the scale of an undefined vector is a NaN.
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
        # The square of the mean is computed in the register in which the squares were divided.
        self.width = parameters.square_sum_width
        if not parameters.rms:
            self.width = max(self.width, 2 * parameters.mean_width + 2)
        self.width += self.width % 2

    @staticmethod
    def cycles(parameters: ElementSerialLayernormParameters) -> int:
        """Return the maximum number of cycles from the sums of a vector to its scale."""
        p = parameters
        pairs = DeviationReciprocal(parameters=p).width // 2
        leading = (EPSILON.bit_length() + 1) // 2
        common = p.square_sum_width + 1 + pairs - leading + 1 + ROOT_DIGITS + QUOTIENT_DIGITS + 1
        return common + (0 if p.rms else p.sum_width + p.mean_width + p.mean_width - 9)

    def elaborate(self, platform: object) -> Module:
        """Sequence the steps."""
        m = Module()
        p = self.parameters
        work = self._registers()
        undefined = Signal(reset_less=True)
        dividend = Signal()
        # All three divisions share one row of restoring division: two by n, and one by the root.
        rest, digit = restoring_step(work.remainder[: len(work.divisor)], dividend, work.divisor)
        divided = _Divided(number=Cat(digit, work.number), remainder=rest)
        m.d.comb += [self.undefined.eq(undefined), dividend.eq(work.number[-1])]
        m.d.sync += work.steps.eq(work.steps - 1)
        with m.FSM(init="IDLE"):
            with m.State("IDLE"):
                with m.If(self.strobe):
                    work.load(m, self.sums.squares)
                    m.d.sync += [
                        work.divisor.eq(self.sums.count),
                        undefined.eq(self.sums.undefined),
                    ]
                    if not p.rms:
                        m.d.sync += [
                            work.other.eq(self.sums.sum),
                            work.negative.eq(self.sums.sum[-1]),
                        ]
                    m.next = "DIVIDE"
            # Dividend bits shift out at the top while quotient bits shift in at the bottom.
            with m.State("DIVIDE"):
                work.step(m, divided)
                with m.If(work.done):
                    m.next = "ADD_EPSILON" if p.rms else "EXCHANGE"
            if not p.rms:
                self._mean(m, work, divided)
            self._root(m, work)
            # The divisor register holds the root: its reciprocal is one more division.
            with m.State("RECIPROCAL"):
                m.d.comb += dividend.eq(0)
                work.step(m, divided)
                with m.If(work.done):
                    m.next = "ROUND"
            with m.State("ROUND"):
                m.d.comb += self.strobe_out.eq(1)
                m.next = "IDLE"
        # All ones in the exponent and in the mantissa's first bit: the quiet NaN.
        quiet_nan = Cat(Const(0, 9), undefined.replicate(6))
        m.d.comb += Value.cast(self.scale.scale).eq(self._rounded(m, work) | quiet_nan)
        return m

    def _registers(self) -> _Registers:
        """Return the registers that all steps use."""
        p = self.parameters
        divisor_width = max(p.count_width, ROOT_DIGITS)
        return _Registers(
            number=Signal(self.width, name="number", reset_less=True),
            divisor=Signal(divisor_width, name="divisor", reset_less=True),
            remainder=Signal(
                max(p.count_width, ROOT_DIGITS + 1), name="remainder", reset_less=True
            ),
            steps=Signal(range(self.width + 1), name="steps", reset_less=True),
            pairs=Signal(range(self.width // 2 + 1), name="pairs", reset_less=True),
            other=Signal(max(p.sum_width, 32 + SQUARE_FRACTION), name="other", reset_less=True),
            negative=Signal(name="negative", reset_less=True),
        )

    def _root(self, m: Module, work: _Registers) -> None:
        """Add epsilon, remove leading pairs of zeros, and take the root."""
        epsilon = Const(EPSILON, self.width)
        with m.State("ADD_EPSILON"):
            m.d.sync += [
                work.number.eq(prefix_sum(m, work.number, epsilon)),
                work.pairs.eq(0),
            ]
            m.next = "NORMALISE"
        # One digit of the root corresponds to a pair of its operand's: shifting by pairs keeps the
        # root's mantissa, and the number of pairs becomes its exponent.
        with m.State("NORMALISE"):
            m.d.sync += [work.remainder.eq(0), work.divisor.eq(0), work.steps.eq(ROOT_DIGITS)]
            with m.If(work.number[-2:].any()):
                m.next = "ROOT"
            with m.Else():
                m.d.sync += [work.number.eq(work.number << 2), work.pairs.eq(work.pairs + 1)]
        # The digits are collected in the divisor register, where the reciprocal needs them.
        with m.State("ROOT"):
            root = work.divisor[:ROOT_DIGITS]
            left, one = root_step(work.remainder[: ROOT_DIGITS + 1], work.number[-2:], root)
            m.d.sync += [
                work.number.eq(work.number << 2),
                work.divisor.eq(Cat(one, root)),
                work.remainder.eq(left),
            ]
            with m.If(work.done):
                # The dividend one, doubled for the first row of the division.
                m.d.sync += [
                    work.remainder.eq(1 << ROOT_DIGITS - 2),
                    work.steps.eq(QUOTIENT_DIGITS),
                ]
                m.next = "RECIPROCAL"

    def _mean(self, m: Module, work: _Registers, divided: _Divided) -> None:
        """Divide the sum, square the quotient, subtract it, round it to FP16."""
        width = self.parameters.mean_width
        average = Signal(width, reset_less=True)
        exponent = Signal(5, reset_less=True)
        guard, sticky = Signal(reset_less=True), Signal(reset_less=True)
        # `other` holds the mean of squares while the sum is divided in its place.
        with m.State("EXCHANGE"):
            complement = work.other ^ work.negative.replicate(len(work.other))
            magnitude = incremented(m, complement, work.negative)
            work.load(m, magnitude[: self.parameters.sum_width - 1])
            m.d.sync += work.other.eq(work.number)
            m.next = "MEAN"
        with m.State("MEAN"):
            work.step(m, divided)
            with m.If(work.done):
                m.next = "HOLD"
        with m.State("HOLD"):
            m.d.sync += [
                average.eq(work.number),
                exponent.eq(0),
                guard.eq(0),
                sticky.eq(0),
                work.steps.eq(width),
            ]
            m.next = "SQUARE"
        with m.State("SQUARE"):
            # The multiplier shifts out at the bottom while the product shifts in above it.
            addend = average & work.number[0].replicate(width)
            upper = prefix_sum(m, work.number[width : 2 * width], addend)
            m.d.sync += work.number.eq(Cat(work.number[1:width], upper))
            with m.If(work.done):
                m.next = "SUBTRACT"
        with m.State("SUBTRACT"):
            # a - b is the complement of ~a + b, which has a carry if a - b is negative.
            square = work.number[2 * SUM_FRACTION - SQUARE_FRACTION : 2 * width]
            wide = Cat(~work.other, Const(-1, len(square)))[: len(square)]
            difference = prefix_sum(m, wide, square)
            variance = ~difference[: 32 + SQUARE_FRACTION]
            m.d.sync += work.number.eq(variance & ~difference[-1].replicate(len(variance)))
            m.next = "ROUND_MEAN"
        # Shifting by one place per cycle is fast enough here and needs no shifter.
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
        # A carry out of the mantissa increments the exponent, because the code is one integer.
        up = guard & (sticky | average[0])
        code = (Cat(Const(0, 10), exponent) + average[:11] + up)[:15]
        m.d.comb += Value.cast(self.scale.mean).eq(Cat(code, work.negative))

    def _rounded(self, m: Module, work: _Registers) -> Value:
        """Return the reciprocal of the root as an FP16 code.

        The root's operand has two bits above the point after `pairs` pairs of leading zeros have
        been removed from it.
        """
        quotient, inexact = work.number[:QUOTIENT_DIGITS], work.remainder[:ROOT_DIGITS].any()
        above = Signal(range(-64, 64))
        m.d.comb += above.eq(work.pairs + SQUARE_FRACTION - self.width // 2)
        # A large deviation has a subnormal reciprocal, which is shifted right before it is rounded.
        subnormal = above[-1]
        shifted = Cat(Const(0, 8), quotient) >> Mux(subnormal, -above, 0)[:3]
        kept, guard = shifted[11:], shifted[10]
        up = guard & (kept[0] | shifted[:10].any() | inexact)
        # The leading one increments the exponent code of a normal number.
        code = Mux(subnormal, 0, above)[:5]
        return (Cat(Const(0, 10), code) + kept + up)[:16]
