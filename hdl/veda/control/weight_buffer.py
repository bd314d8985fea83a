"""VEDA's weight buffer: what a block of tokens needs of a matrix comes from memory once."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters


class WeightBuffer(Unit):
    """A FIFO of memory's lines whose reader may go back to the oldest that it holds.

    A segment of a matrix is what a token needs before the next token can use the same lines: those
    of a row of results, or of a block of outputs. For all tokens but the last, lines are held and
    read again; meanwhile the next ones come in, as far as there is room.

    **Latency** 2 cycles. **Throughput** one line a cycle, also when the reader goes back.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions; a segment has `segment_lines` at most.

    Members
    -------
    source : In(stream)
        A line of each channel.
    sink : Out(stream)
        The same, from the memory's output.
    hold : In(1)
        The line that is handed over is needed again.
    replay : In(1)
        Behind it comes the oldest line held; only with `hold`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "source": In(stream.Signature(p.beat_layout)),
                "sink": Out(stream.Signature(p.beat_layout)),
                "hold": In(1),
                "replay": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Write at one pointer, read at another, free at a third."""
        m = Module()
        p, sink = self.parameters, self.sink
        depth = p.segment_lines

        # Not a power of two: a pointer returns to zero by comparison.
        def pointer(name: str, moves: Value, value: Value | None = None) -> Signal:
            register = Signal(ceil_log2(depth), name=name)
            now = register if value is None else value
            with m.If(moves):
                m.d.sync += register.eq(Mux(now == depth - 1, 0, now + 1))
            return register

        arrives, leaves, frees, back = Signal(), Signal(), Signal(), Signal()
        read_from = Signal(ceil_log2(depth))
        written = pointer("written", arrives)
        oldest = pointer("oldest", frees)
        place = pointer("place", leaves, read_from)
        # Lines that have not left for the last time, and those behind the one at the output: to go
        # back makes the second count equal to the first.
        held, ahead = Signal(range(depth + 1)), Signal(range(depth + 1))
        handed_over = sink.valid & sink.ready
        m.d.comb += [
            self.source.ready.eq(held != depth),
            arrives.eq(self.source.valid & self.source.ready),
            frees.eq(handed_over & ~self.hold),
            back.eq(handed_over & self.replay),
            read_from.eq(Mux(back, oldest, place)),
            leaves.eq(back | ((ahead != 0) & (~sink.valid | sink.ready))),
        ]
        m.d.sync += [
            held.eq(held + arrives - frees),
            ahead.eq(Mux(back, held, ahead) + arrives - leaves),
        ]
        with m.If(leaves | sink.ready):
            m.d.sync += sink.valid.eq(leaves)
        # One set of pointers for the memories of all arrays: they move in lock-step.
        for copy in range(p.copies):
            lines = Memory(depth=depth, width=p.array.vector_layout.size)
            m.submodules[f"lines_{copy}"] = lines
            m.d.comb += [
                lines.write_enable.eq(arrives),
                lines.write_address.eq(written),
                lines.write_data.eq(Value.cast(self.source.payload[copy])),
                lines.read_enable.eq(leaves),
                lines.read_address.eq(read_from),
                Value.cast(sink.payload[copy]).eq(lines.read_data),
            ]
        return m
