"""VEDA's weight buffer: reuses the weights of a matrix for all tokens of a block."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters


class WeightBuffer(Unit):
    """A FIFO of memory lines whose reader can return to the oldest line held.

    A segment of a matrix is the set of lines that a token needs before the next token can use the
    same lines: those of a row of results, or of a block of outputs. For all tokens but the last,
    lines are held and read again. Meanwhile the next lines are written, as far as there is room.

    **Latency** 2 cycles. **Throughput** one line per cycle, also when the reader returns.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator; a segment has at most `segment_lines` lines.

    Members
    -------
    source : In(stream)
        A line of each channel.
    sink : Out(stream)
        The same lines, from the memory's output.
    hold : In(1)
        The line that is transferred is needed again.
    replay : In(1)
        The oldest line held follows the line that is transferred; only with `hold`.
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

    def elaborate(self, platform: object) -> Module:
        """Write at one pointer, read at another, free at a third."""
        m = Module()
        p, sink = self.parameters, self.sink
        depth = p.segment_lines

        # The depth is not a power of two: pointers wrap around by comparison.
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
        # Lines not yet read for the last time, and lines after the one at the output. Returning to
        # the oldest line makes the second count equal to the first.
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
        # The memories of all arrays operate in lock-step and share one set of pointers.
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
