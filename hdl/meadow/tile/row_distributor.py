"""Distribute rows of queries, scores or probabilities from external memory to the lanes."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.tile_parameters import BlockMode, TileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit

QUEUED = 2
"""Words queued per lane, so that the next word is ready when the current one is consumed."""


class RowDistributor(Unit):
    """Round-robin distribution of words of rows to the lanes, in the order of the results.

    A query is one word. A row of scores or probabilities has as many words as the context needs;
    for each group of tokens, the first word of every row precedes the second word of any row. Lanes
    without a token in the last group receive arbitrary words.

    **Latency** 3 cycles. **Throughput** one word per cycle.

    Parameters
    ----------
    parameters : TileParameters
        Number of lanes and dimensions of rows.

    Members
    -------
    command : In
        As in `HybridTile`; with `wide` a probability has two bytes, in two words.
    start : In(1)
        A block of rows begins.
    rows : In(stream)
        As in `HybridTile`.
    lane_0, lane_1, ... : Out(stream)
        Words of a lane.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        word = stream.Signature(p.lane_word_layout)
        super().__init__(
            {
                "command": In(p.command_layout),
                "start": In(1),
                "rows": In(stream.Signature(p.word_layout)),
                **{f"lane_{n}": Out(word) for n in range(p.lanes)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count lanes, a row's words, groups, heads."""
        m = Module()
        p, command, rows = self.parameters, self.command, self.rows
        active, upper = Signal(), Signal()
        lane, head = Signal(range(p.lanes)), Signal(range(p.heads + 1))
        taken, absent, ready = Signal(), Signal(), Signal()
        lower = Signal(p.element.word_layout, reset_less=True)
        # The queues hold only the bits of an element that a query, score or probability uses.
        kept = data.ArrayLayout(max(len(lower[0]), p.probability_bits), p.size)
        queues = [MemoryFifo(shape=kept, depth=QUEUED) for _ in range(p.lanes)]
        lane_last, row_last, queries = lane == p.lanes - 1, Signal(), Signal()
        turn = taken & lane_last
        _place, words_last = group_counter(
            m, "place", command.context, p.size, ends=turn & ~queries
        )
        first, group_last = group_counter(m, "first", command.tokens, p.lanes, ends=turn & row_last)
        halved = (command.mode == BlockMode.OUTPUTS) & command.wide
        m.d.comb += [
            queries.eq(command.mode == BlockMode.SCORES),
            row_last.eq(queries | words_last),
            absent.eq(first + lane >= command.tokens),
            ready.eq(Array(queue.source.ready for queue in queues)[lane]),
            taken.eq(active & ready & (absent | (rows.valid & (~halved | upper)))),
            # A register holds the lower bytes until the upper ones arrive.
            rows.ready.eq(active & ~absent & Mux(halved & ~upper, 1, ready)),
        ]
        for number, queue in enumerate(queues):
            m.submodules[f"queue_{number}"] = queue
            m.d.comb += queue.source.valid.eq(taken & (lane == number))
            port = getattr(self, f"lane_{number}")
            for i in range(p.size):
                own = rows.payload.word[i].as_unsigned()
                m.d.comb += [
                    queue.source.payload[i].eq(Mux(halved, Cat(lower[i], own), own)),
                    port.payload.word[i].eq(queue.sink.payload[i]),
                ]
            m.d.comb += [port.valid.eq(queue.sink.valid), queue.sink.ready.eq(port.ready)]
        with m.If(rows.valid & rows.ready):
            m.d.sync += [lower.eq(rows.payload.word), upper.eq(halved & ~upper)]
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(taken):
            m.d.sync += lane.eq(Mux(lane_last, 0, lane + 1))
            with m.If(lane_last & row_last & group_last):
                m.d.sync += head.eq(head + 1)
                with m.If(head + 1 == command.heads):
                    m.d.sync += [head.eq(0), active.eq(0)]
        return m
