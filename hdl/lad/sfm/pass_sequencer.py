"""The sequence of passes over a row in the special function module."""

from enum import Enum

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.sfm.sfm_parameters import Function, SpecialFunctionModuleParameters
from hdl.unit import Unit


class Pass(enum.Enum, shape=unsigned(4)):
    """What happens to each slice of the row.

    Members
    -------
    LOAD, OUT : int
        The slice is written to the memory; it is output.
    SCALE : int
        Multiply by the power of two that brings the row's largest element to between 1 and 2.
    SUM, SQUARES : int
        Add up the elements, or their squares.
    MEAN, DEVIATION : int
        No slice: compute the mean, or the reciprocal deviation, from the sum.
    CENTRE, NORMALISE : int
        Subtract the mean; multiply by the reciprocal deviation.
    WEIGHT, BIAS : int
        Multiply by a slice of `factors`; add a slice of `addends`.
    """

    LOAD = 0
    SCALE = 1
    SUM = 2
    MEAN = 3
    CENTRE = 4
    SQUARES = 5
    DEVIATION = 6
    NORMALISE = 7
    WEIGHT = 8
    BIAS = 9
    OUT = 10


PASSES = {
    Function.LAYER_NORM: (
        Pass.LOAD,
        Pass.SCALE,
        Pass.SUM,
        Pass.MEAN,
        Pass.CENTRE,
        Pass.SQUARES,
        Pass.DEVIATION,
        Pass.NORMALISE,
        Pass.WEIGHT,
        Pass.BIAS,
        Pass.OUT,
    ),
    Function.RMS_NORM: (
        Pass.LOAD,
        Pass.SCALE,
        Pass.SQUARES,
        Pass.DEVIATION,
        Pass.NORMALISE,
        Pass.WEIGHT,
        Pass.OUT,
    ),
}
"""The passes of each function of a row."""

PACED = (Pass.SUM, Pass.SQUARES, Pass.BIAS)
"""Passes that read one slice per `pace` cycles, the latency of an adder."""


class PassSequencer(Unit):
    """Run the passes of a function, each over all slices of the row.

    A slice is read only when its other operand is available: nothing after the memory can stall.

    **Latency** one cycle from the last result of a pass to the first read of the next one.
    **Throughput** one slice per cycle, in `PACED` passes one per `pace` cycles.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Slices of a row.

    Members
    -------
    now : Out(Pass)
        The current pass.
    function : In(Function)
        The function of the row, during `LOAD`.
    read, place : Out
        Read this slice.
    shown, held : Out(1)
        A slice was read one cycle ago, and is at the memory's output; two cycles ago.
    factor, addend : In(1)
        Slices of `factors` and `addends` are available.
    retire : In(1)
        A slice is complete.
    done : Out
        Number of complete slices, and the index of the next one.
    computed : In(1)
        The result of a pass without slices is complete.
    valid, ready : Out(1), In(1)
        Handshake of the slice at the memory's output, in the pass `OUT`.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = p = parameters
        place = range(p.slices + 1)
        inputs = ("factor", "addend", "retire", "computed", "ready")
        outputs = ("read", "shown", "held", "valid")
        super().__init__(
            {"now": Out(Pass), "function": In(Function), "place": Out(place), "done": Out(place)}
            | {name: In(1) for name in inputs}
            | {name: Out(1) for name in outputs}
        )

    def elaborate(self, platform: object) -> Module:
        """Count the slices of a pass; then begin the next pass of the function."""
        m = Module()
        p, now = self.parameters, self.now
        loading, out = now == Pass.LOAD, now == Pass.OUT
        # The function of the first slice applies to the whole row.
        held, function = Signal(Function, reset_less=True), Signal(Function)
        m.d.comb += function.eq(Mux(loading, Value.cast(self.function), Value.cast(held)))
        with m.If(loading):
            m.d.sync += held.eq(self.function)

        rest = Signal(range(p.pace))
        more, ends = self.place != p.slices, Signal()
        waits = among(now, Pass.LOAD, Pass.MEAN, Pass.DEVIATION)
        needs = ((now != Pass.WEIGHT) | self.factor) & ((now != Pass.BIAS) | self.addend)
        shown = delay_line(m, self.read, 2, name="shown", reset=True)
        m.d.comb += [
            self.read.eq(more & (rest == 0) & Mux(out, ~self.valid | self.ready, needs) & ~waits),
            self.shown.eq(shown[1]),
            self.held.eq(shown[2]),
            ends.eq(
                (self.retire & (self.done == p.slices - 1))
                | self.computed
                | (out & self.valid & self.ready & ~more)
            ),
        ]
        m.d.sync += rest.eq(Mux(rest == 0, 0, rest - 1))
        with m.If(self.read):
            m.d.sync += [
                self.place.eq(self.place + 1),
                rest.eq(Mux(among(now, *PACED), p.pace - 1, 0)),
            ]
        with m.If(self.retire):
            m.d.sync += self.done.eq(self.done + 1)
        with m.If(ends):
            # Every pass begins at the first slice of the row.
            m.d.sync += [self.place.eq(0), self.done.eq(0), rest.eq(0)]
            self._follow(m, function)
        # The memory's output is constant until the next read.
        with m.If(out & (self.read | self.ready)):
            m.d.sync += self.valid.eq(self.read)
        return m

    def _follow(self, m: Module, function: ValueLike) -> None:
        """Begin the next pass of the function; after the last one, load the next row."""
        with m.Switch(function):
            for one, passes in PASSES.items():
                with m.Case(one), m.Switch(self.now):
                    for current, following in zip(passes, (*passes[1:], passes[0]), strict=True):
                        with m.Case(current):
                            m.d.sync += self.now.eq(following)


def among(now: ValueLike, *values: Enum) -> Value:
    """Return whether a signal has one of several values of its enumeration."""
    return Value.cast(now).matches(*values)
