"""Piecewise linear exponential: the interval of a score and the line that approximates exp."""

from functools import reduce
from operator import or_
from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.arith.operator import Operator
from hdl.lad.exp_intervals import MODE_BITS, IntervalParameters
from hdl.parameters import Range, parameter_object
from hdl.unit import Unit


@parameter_object
class PiecewiseLinearExpParameters(IntervalParameters):
    """Dimensions of the lookup; they also configure its golden model and its testbench.

    Parameters
    ----------
    intervals, fit, tail
        As in `IntervalParameters`.
    lanes : int
        Scores per cycle: 12 in APID, 2 in MD.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, Range(1, 16, "scores")] = 2

    @property
    def table(self) -> IntervalParameters:
        """The intervals alone, without the number of lanes."""
        return IntervalParameters(intervals=self.intervals, fit=self.fit, tail=self.tail)

    @property
    def scores_layout(self) -> data.StructLayout:
        """Payload of `scores`."""
        return data.StructLayout(
            {
                "values": data.ArrayLayout(BINARY16.width, self.lanes),
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
            }
        )

    @property
    def lines_layout(self) -> data.StructLayout:
        """Payload of `lines`."""
        return data.StructLayout(
            {
                "intervals": data.ArrayLayout(MODE_BITS, self.lanes),
                "active": data.ArrayLayout(1, self.lanes),
                "slopes": data.ArrayLayout(BINARY16.width, self.lanes),
                "intercepts": data.ArrayLayout(BINARY16.width, self.lanes),
            }
        )


class PiecewiseLinearExp(Unit):
    """Find the intervals of several scores, and their lines a x + b (Section III-A).

    **Latency** 1 cycle. **Throughput** `lanes` scores per cycle.

    **Numerics** FP16, exact: the coefficients of `IntervalParameters` are rounded once from the
    least-squares fit. An interval contains its upper bound and not its lower one. A score above 0
    is in the top interval; minus infinity and NaN are in the tail, whose line is 0.

    Parameters
    ----------
    parameters : PiecewiseLinearExpParameters
        Intervals, fit and lanes.

    Members
    -------
    scores : In(stream)
        `values`: scores less their maximum, in FP16; `modes`: the mode of each position, below
        `intervals`.
    lines : Out(stream)
        Per lane: the index in `intervals`; `active`, 1 if it is not the mode; the line's `slopes` a
        and `intercepts` b in FP16.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `PiecewiseLinearExpParameters`.
    """

    def __init__(self, *, parameters: PiecewiseLinearExpParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.scores_layout)),
                "lines": Out(stream.Signature(parameters.lines_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the lanes, which share one enable."""
        m = Module()
        # One enable for all lanes: they stall together.
        move = ~self.lines.valid | self.lines.ready
        m.d.comb += self.scores.ready.eq(move)
        valid = delay_line(m, self.scores.valid, 1, name="valid", enable=move, reset=True)[-1]
        m.d.comb += self.lines.valid.eq(valid)
        given, found = self.scores.payload, self.lines.payload
        for i in range(self.parameters.lanes):
            m.submodules[f"lane_{i}"] = lane = IntervalLookup(
                parameters=self.parameters.table, stages=1, enable=True
            )
            m.d.comb += [
                lane.enable.eq(move),
                lane.score.eq(given.values[i]),
                lane.mode.eq(given.modes[i]),
                found.intervals[i].eq(lane.interval),
                found.active[i].eq(lane.active),
                found.slopes[i].eq(lane.slope),
                found.intercepts[i].eq(lane.intercept),
            ]
        return m


class IntervalLookup(Operator):
    """One lane of `PiecewiseLinearExp`: the comparison of APID and the lookup of MD.

    **Latency** `stages` cycles. **Throughput** one score per cycle. **Numerics** as in
    `PiecewiseLinearExp`.

    Parameters
    ----------
    parameters : IntervalParameters
        Intervals and lines.
    stages : int
        Pipeline stages: the first one registers the result, a second one also the comparators.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    score : In(16)
        A score less the maximum, in FP16.
    mode : In(4)
        The mode of the position, below `intervals`.
    interval : Out(4)
        Index of the score's interval.
    active : Out(1)
        The interval is not the mode.
    slope, intercept : Out(16)
        a and b of the interval's line, in FP16.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, parameters: IntervalParameters, stages: int = 0, enable: bool = False
    ) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "score": In(BINARY16.width),
                "mode": In(MODE_BITS),
                "interval": Out(MODE_BITS),
                "active": Out(1),
                "slope": Out(BINARY16.width),
                "intercept": Out(BINARY16.width),
            },
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Compare with all bounds in parallel; the comparators' outputs select the line."""
        m = Module()
        p = self.parameters
        pipeline = self.pipeline(m, cuts=2)
        above, mode = pipeline.cut(Cat(*self._comparators()), self.mode)
        # Bounds ascend: the outputs are 1 up to the interval and 0 above it. Their sum is the
        # index, and their edge selects the line.
        edges = Cat(Const(1, 1), above)
        selected = edges & ~Cat(above, Const(0, 1))
        # APID's comparison with both bounds of the mode is the selection bit of the mode.
        results = pipeline.cut(
            tree_sum(list(above))[:MODE_BITS],
            ~selected.bit_select(mode, 1),
            _chosen(selected, p.slope_codes),
            _chosen(selected, p.intercept_codes),
        )
        outputs = (self.interval, self.active, self.slope, self.intercept)
        m.d.comb += [output.eq(result) for output, result in zip(outputs, results, strict=True)]
        return m

    def _comparators(self) -> list[Value]:
        """Return for each bound whether it is strictly below the score; all bounds are negative."""
        magnitude, negative = self.score[:-1], self.score[-1]
        number = magnitude <= BINARY16.exponent_mask << BINARY16.mantissa_bits
        # A negative NaN has a larger magnitude than any bound; only a positive one needs a test.
        return [
            Mux(negative, magnitude < (code & BINARY16.magnitude_mask), number)
            for code in self.parameters.bound_codes
        ]


def _chosen(selected: Value, codes: tuple[int, ...]) -> Value:
    """Return the code that is selected."""
    terms = [
        Mux(bit, Const(code, BINARY16.width), 0) for bit, code in zip(selected, codes, strict=True)
    ]
    return reduce(or_, terms)
