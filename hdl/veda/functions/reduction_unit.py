"""The reduction unit: a head's exponentials and the reciprocal of their sum, one score per cycle.

The reduction of the paper's Figure 6. Exponentials have the base 2, so only the integer part of the
maximum is subtracted. An exponential is then a mantissa and a distance, and a shift rescales the
sum to a larger maximum.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_exp2 import WHOLE_BITS, FloatExp2
from hdl.arith.prefix_sum import prefix_sum
from hdl.unit import Unit
from hdl.veda.functions.exponential_sum import ExponentialSum
from hdl.veda.functions.softmax_parameters import (
    DISTANCE_BITS,
    ElementSerialSoftmaxParameters,
)


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    """A score that may not be a number, and its head.

    Parameters
    ----------
    nothing : Value
        The score is an infinity or a NaN.
    undefined : Value
        Its head so far has no softmax.
    """

    nothing: Value
    undefined: Value


@dataclass(frozen=True, kw_only=True)
class _Power:
    """A power of two, compared with the largest one of its head before it.

    Parameters
    ----------
    distance : Value
        Difference of the exponents, clamped.
    rises : Value
        It is above the largest one.
    """

    distance: Value
    rises: Value


class ReductionUnit(Unit):
    """Compute the exponentials of heads of scores, and the reciprocal of each head's sum.

    **Latency** `exponential_cycles` from a score to its exponential; ``exp_stages + 4 +
    division_cycles`` from a head's last score to the reciprocal. **Throughput** one score per
    cycle; a head takes at least `division_cycles` + 1. There are no stalls inside.

    **Numerics** as in `ElementSerialSoftmax`.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions of the softmax.

    Members
    -------
    scores : In(stream)
        Scores, and the end of a head.
    exponential_strobe, exponential, exponential_last : Out
        A score's exponential, and the end of a head, valid with the strobe. The consumer must have
        room.
    reciprocal_strobe, reciprocal : Out
        A head's reciprocal and scale, valid with the strobe. The consumer must have room.
    flags : Out(struct)
        Events since reset or `clear_flags`: a head with a NaN, a head without a finite maximum.
    clear_flags : In(1)
        Clears `flags`.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.element_layout)),
                "exponential_strobe": Out(1),
                "exponential": Out(parameters.exponential_layout),
                "exponential_last": Out(1),
                "reciprocal_strobe": Out(1),
                "reciprocal": Out(parameters.reciprocal_layout),
                "flags": Out(parameters.flags_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Accept scores, compute the distances of their exponentials, accumulate."""
        m = Module()
        p = self.parameters
        m.submodules.total = total = ExponentialSum(parameters=p)
        # Only a head's last score waits, for the division of the previous head.
        busy = Signal(range(p.division_cycles + 1))
        score, take = self.scores.payload, Signal()
        m.d.comb += [
            self.scores.ready.eq(~(score.last & busy.any())),
            take.eq(self.scores.valid & self.scores.ready),
        ]
        with m.If(take & score.last):
            m.d.sync += busy.eq(p.division_cycles)
        with m.Elif(busy.any()):
            m.d.sync += busy.eq(busy - 1)

        verdict = self._judge(m, take)
        m.submodules.exp = exp = FloatExp2(stages=p.exp_stages)
        m.d.comb += exp.a.eq(score.value)
        # Control bits in parallel with the exponential unit.
        strobe = delay_line(m, take, p.exp_stages, name="strobe", reset=True)[-1]
        marks = Cat(verdict.nothing, score.last, verdict.undefined)
        nothing, last, undefined = delay_line(m, marks, p.exp_stages, name="marks")[-1]
        power = self._distance(m, strobe, exp.whole, nothing, last)

        valid = Signal()
        mantissa, marks = Signal(len(exp.mantissa), reset_less=True), Signal(2, reset_less=True)
        m.d.sync += [
            valid.eq(strobe),
            mantissa.eq(exp.mantissa),
            marks.eq(Cat(last, undefined)),
        ]
        m.d.comb += [
            self.exponential_strobe.eq(valid),
            self.exponential.mantissa.eq(mantissa),
            self.exponential.distance.eq(power.distance),
            self.exponential.rises.eq(power.rises),
            self.exponential_last.eq(marks[0]),
            total.strobe.eq(valid),
            total.exponential.eq(self.exponential),
            Cat(total.last, total.undefined).eq(marks),
            self.reciprocal_strobe.eq(total.strobe_out),
            self.reciprocal.eq(total.reciprocal),
        ]
        return m

    def _judge(self, m: Module, take: Value) -> _Verdict:
        """Judge a score and its head so far."""
        score = self.scores.payload
        # A head needs a finite score, and neither a NaN nor +inf.
        nan_before, infinite_before = Signal(reset_less=True), Signal(reset_less=True)
        number_before, begins = Signal(reset_less=True), Signal(init=1)
        nothing = score.value.exponent.all()
        nan = nothing & score.value.mantissa.any()
        nans, infinite, numbers, none = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            nans.eq(nan | (nan_before & ~begins)),
            infinite.eq((nothing & ~score.value.sign) | (infinite_before & ~begins)),
            numbers.eq(~nothing | (number_before & ~begins)),
            none.eq(infinite | ~numbers),
        ]
        with m.If(take):
            m.d.sync += [
                begins.eq(score.last),
                nan_before.eq(nans),
                infinite_before.eq(infinite),
                number_before.eq(numbers),
            ]
        # Sticky, and set has priority: a clear in the same cycle loses no head.
        ends = take & score.last
        m.d.sync += [
            self.flags.nan.eq((self.flags.nan & ~self.clear_flags) | (ends & nans)),
            self.flags.infinite.eq(
                (self.flags.infinite & ~self.clear_flags) | (ends & ~nans & none)
            ),
        ]
        return _Verdict(nothing=nothing, undefined=nans | none)

    def _distance(
        self, m: Module, strobe: Value, whole: Value, nothing: Value, last: Value
    ) -> _Power:
        """Compare a power with the largest so far; the result is valid a cycle later."""
        largest, empty = Signal(signed(WHOLE_BITS), reset_less=True), Signal(init=1)
        # One sum serves both cases: `whole - largest - 1` is not negative if the power rises, and
        # its complement is `largest - whole`, the distance, otherwise.
        width = WHOLE_BITS + 1
        step = prefix_sum(m, _extended(whole, width), _extended(~largest, width))[:width]
        rises = ~nothing & (empty | ~step[-1])
        with m.If(strobe):
            m.d.sync += empty.eq(last | (empty & nothing))
        with m.If(strobe & rises):
            m.d.sync += largest.eq(whole)
        known, rises_known = Signal(width, reset_less=True), Signal(reset_less=True)
        apart = Signal(reset_less=True)
        # A head's first number rises above nothing: its distance is `FAR`.
        m.d.sync += [known.eq(step), rises_known.eq(rises), apart.eq(empty | nothing)]

        gap = known ^ (~rises_known).replicate(width)
        near = gap[:DISTANCE_BITS]
        far = apart | gap[DISTANCE_BITS:].any() | (rises_known & near.all())
        distance = Signal(DISTANCE_BITS)
        m.d.comb += distance.eq((near + rises_known) | far.replicate(DISTANCE_BITS))
        return _Power(distance=distance, rises=rises_known)


def _extended(value: Value, width: int) -> Value:
    """Return a signed value, sign-extended to `width` bits."""
    return Cat(value, value[-1].replicate(width - len(value)))
