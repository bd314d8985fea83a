"""Arbitration of a tile's vector units between pipeline, linear layers and special functions."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.unit_pool import Turn
from hdl.lad.parameters import LadTileParameters
from hdl.unit import Unit


class UnitTurns(Unit):
    """Grant the vector units to one task or row at a time, while the attention pipeline pauses.

    A grant ends when the last sum of a task has been added, or the last result of a row has been
    transferred. The next task must not begin in parallel with the last products of this one.

    **Latency** 1 cycle from the pipeline's pause to a grant. **Throughput** one task or row at a
    time.

    Parameters
    ----------
    parameters : LadTileParameters
        Payloads.

    Members
    -------
    tasks, vectors : In(stream)
        Streams of the linear module and of the special function module, from outside.
    granted_tasks, granted_vectors : Out(stream)
        The same, to the modules.
    linear_busy, function_busy : In(1)
        The module is busy.
    turn : Out(Turn)
        The user of the vector units.
    idle : In(1)
        The pipeline uses no vector unit.
    offered : In(1)
        A step is offered that has not begun: a valid `appends` must not be withdrawn.
    wanted : Out(1)
        Other layers request or use the vector units.
    may_begin : Out(1)
        A step may begin.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        tasks = stream.Signature(p.linear.task_layout)
        vectors = stream.Signature(p.sfm.vector_layout)
        super().__init__(
            {
                "tasks": In(tasks),
                "vectors": In(vectors),
                "granted_tasks": Out(tasks),
                "granted_vectors": Out(vectors),
                "linear_busy": In(1),
                "function_busy": In(1),
                "turn": Out(Turn),
                "idle": In(1),
                "offered": In(1),
                "wanted": Out(1),
                "may_begin": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Grant, wait for the end of the work, and return the units to the pipeline."""
        m = Module()
        begun, over, offered = Signal(), Signal(), Signal()
        m.d.sync += offered.eq(self.offered)
        attention = self.turn == Turn.ATTENTION
        waits = self.tasks.valid | self.vectors.valid
        m.d.comb += [
            self.wanted.eq(waits | ~attention),
            self.may_begin.eq(attention & (~waits | offered)),
        ]
        # A task is accepted once per grant; the next row not in the cycle in which a row ends.
        tasked = (self.turn == Turn.LINEAR) & ~over
        rowed = (self.turn == Turn.FUNCTION) & (~begun | self.function_busy)
        for source, sink, selected in (
            (self.tasks, self.granted_tasks, tasked),
            (self.vectors, self.granted_vectors, rowed),
        ):
            m.d.comb += [
                sink.payload.eq(source.payload),
                sink.valid.eq(source.valid & selected),
                source.ready.eq(sink.ready & selected),
            ]
        with m.Switch(self.turn):
            with m.Case(Turn.ATTENTION), m.If(self.idle & ~offered):
                m.d.sync += [begun.eq(0), over.eq(0)]
                with m.If(self.tasks.valid):
                    m.d.sync += self.turn.eq(Turn.LINEAR)
                with m.Elif(self.vectors.valid):
                    m.d.sync += self.turn.eq(Turn.FUNCTION)
            with m.Case(Turn.LINEAR):
                with m.If(self.tasks.valid & self.tasks.ready):
                    m.d.sync += over.eq(1)
                with m.If(over & ~self.linear_busy):
                    m.d.sync += self.turn.eq(Turn.ATTENTION)
            with m.Case(Turn.FUNCTION):
                with m.If(self.vectors.valid & self.vectors.ready):
                    m.d.sync += begun.eq(1)
                with m.If(begun & ~self.function_busy):
                    m.d.sync += self.turn.eq(Turn.ATTENTION)
        return m
