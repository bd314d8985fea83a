"""VEDA's scheduler: which heads come when, and where each token's keys and values stand.

Sections 4.2 and 5 of the paper. It goes through a layer's heads, orders the bursts of memory and
tells the arrays what they are; it knows nothing of numbers.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.stream.fall_through_fifo import FallThroughFifo
from hdl.unit import Unit
from hdl.veda.array_parameters import ArrayMode
from hdl.veda.slot_table import SlotTable
from hdl.veda.stream_links import connect_streams
from hdl.veda.veda_parameters import VedaParameters

PASSES_AHEAD = 4
"""Passes that are ordered before the arrays come to them."""

STEPS_AHEAD = 4
"""Steps that the voting engine is told of before it comes to them."""


class Scheduler(Unit):
    """Turn one token's attention in one layer into writes, bursts and passes.

    An instruction writes the token's keys and values into its slot; then, for each group of heads,
    come a pass a head for the scores (inner products), and a pass a head for the outputs (outer
    products). While the scores of a group's later heads are computed, the softmax of its first
    heads ends, and while its outputs are, the votes are counted: neither costs a cycle.

    **Latency** 2 cycles from an instruction to its first write; a burst goes out in the cycle after
    the last write. **Throughput** one write, one pass a cycle; an instruction waits while its
    layer's victim is not known.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    instructions : In(stream)
        `layer`; with `load`, `length` tokens are in the cache before this one, else what there was;
        `vote`: the token votes; `evictions`: victims to find, of which one alone gives its slot to
        the layer's next token.
    vectors : In(stream)
        For each instruction the token's keys, its values, then its queries, a head a lane in each
        beat.
    writes : Out(stream)
        Keys and values.
    queries : Out(stream)
        The queries, one beat for each pass of scores.
    reads : Out(stream)
        Bursts of keys or values. A burst must see what was written before it was ordered.
    passes : Out(stream)
        What the arrays do with each burst.
    steps : Out(stream)
        What the voting engine is told of each instruction.
    victims : In(stream)
        What the voting engine finds.
    evictions : Out(stream)
        The slots of those found, with their layers.
    overflow : Out(1)
        A token without a slot is offered: it takes the last slot. Until reset.

    Raises
    ------
    ValueError
        By `VedaParameters`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        p = parameters
        self.parameters = p
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "vectors": In(stream.Signature(p.beat_layout)),
                "writes": Out(stream.Signature(p.write_layout)),
                "queries": Out(stream.Signature(p.beat_layout)),
                "reads": Out(stream.Signature(p.read_layout)),
                "passes": Out(stream.Signature(p.pass_layout)),
                "steps": Out(stream.Signature(p.voting.layer_layout)),
                "victims": In(stream.Signature(p.voting.victim_layout)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Look up, write, issue."""
        m = Module()
        p = self.parameters
        m.submodules.table = table = SlotTable(parameters=p)
        m.submodules.ahead = ahead = FallThroughFifo(shape=p.pass_layout, depth=PASSES_AHEAD)
        m.submodules.told = told = FallThroughFifo(shape=p.voting.layer_layout, depth=STEPS_AHEAD)
        for source, sink in (
            (self.instructions, table.instructions),
            (self.victims, table.victims),
            (table.evictions, self.evictions),
            (ahead.sink, self.passes),
            (told.sink, self.steps),
        ):
            connect_streams(m, source, sink)
        step, looked_up = told.source.payload, table.tasks.payload
        m.d.comb += [
            self.overflow.eq(table.overflow),
            step.length.eq(looked_up.length),
            step.vote.eq(looked_up.vote),
            step.new_slot.eq(looked_up.slot),
            step.evictions.eq(looked_up.evictions),
        ]

        task = Signal(p.task_layout, reset_less=True)
        # The queries that follow the keys and values; they go on while the next task is looked up.
        queries_left = Signal(range(p.rounds + 1))
        asks = queries_left != 0
        writes = self.writes.valid & self.writes.ready
        m.d.comb += [
            self.queries.valid.eq(self.vectors.valid & asks),
            self.queries.payload.eq(self.vectors.payload),
            self.vectors.ready.eq(Mux(asks, self.queries.ready, writes)),
        ]
        with m.If(self.queries.valid & self.queries.ready):
            m.d.sync += queries_left.eq(queries_left - 1)

        with m.FSM(name="phase"):
            with m.State("LOOKUP"):
                m.d.comb += [
                    table.tasks.ready.eq(told.source.ready),
                    told.source.valid.eq(table.tasks.valid),
                ]
                m.d.sync += task.eq(table.tasks.payload)
                with m.If(table.tasks.valid & told.source.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.writes.valid.eq(self.vectors.valid & ~asks)
                with m.If(self._write(m, task)):
                    m.d.sync += queries_left.eq(p.rounds)
                    m.next = "ISSUE"
            with m.State("ISSUE"):
                m.d.comb += [
                    self.reads.valid.eq(ahead.source.ready),
                    ahead.source.valid.eq(self.reads.ready),
                ]
                with m.If(self._issue(m, task, ahead.source.payload)):
                    m.next = "LOOKUP"
        return m

    def _write(self, m: Module, task: Any) -> Value:
        """Address a token's keys, then its values; return whether the last of them leaves."""
        p = self.parameters
        turn, value = Signal(range(p.kv_rounds)), Signal()
        payload = self.writes.payload
        m.d.comb += payload.words.eq(self.vectors.payload)
        for channel in range(p.channels):
            heads = [p.lane(turn, channel) for turn in range(p.kv_rounds)]
            address = payload.addresses[channel]
            m.d.comb += [
                payload.enables[channel].eq(Array(head < p.kv_heads for head in heads)[turn]),
                *self._address(channel, address, task, value),
                address.kv_head.eq(Array(head % p.kv_heads for head in heads)[turn]),
            ]
        moves = self.writes.valid & self.writes.ready
        ends = turn == p.kv_rounds - 1
        with m.If(moves):
            m.d.sync += [turn.eq(Mux(ends, 0, turn + 1)), value.eq(value ^ ends)]
        return moves & ends & value

    def _issue(self, m: Module, task: Any, header: Any) -> Value:
        """Go through the groups; return whether the last pass leaves."""
        p = self.parameters
        turn, first = Signal(range(p.rounds)), Signal(range(p.rounds))
        mode = Signal(ArrayMode)
        burst = self.reads.payload
        m.d.comb += [
            burst.beats.eq(task.length),
            header.beats.eq(task.length),
            header.mode.eq(mode),
            header.vote.eq(task.vote),
        ]
        outer = mode == ArrayMode.OUTER
        for channel in range(p.channels):
            heads = [p.kv_head(turn, channel) for turn in range(p.rounds)]
            m.d.comb += self._address(channel, burst.addresses[channel], task, outer)
            m.d.comb += [
                burst.addresses[channel].slot.eq(0),
                burst.addresses[channel].kv_head.eq(Array(heads)[turn]),
            ]
        moves = self.reads.valid & self.reads.ready
        last = turn == p.rounds - 1
        closes = Array(turn % p.group == p.group - 1 for turn in range(p.rounds))[turn] | last
        with m.If(moves):
            m.d.sync += turn.eq(turn + 1)
            with m.If(closes & ~outer):
                m.d.sync += [mode.eq(ArrayMode.OUTER), turn.eq(first)]
            with m.Elif(closes):
                m.d.sync += [mode.eq(ArrayMode.INNER), first.eq(turn + 1)]
            with m.If(last & outer):
                m.d.sync += [turn.eq(0), first.eq(0)]
        return moves & last & outer

    def _address(self, channel: int, address: Any, task: Any, value: Value) -> list[Any]:
        """Fill in what does not depend on the head."""
        p = self.parameters
        return [
            address.layer.eq(task.layer),
            address.value.eq(value),
            address.slot.eq(task.slot),
            address.part.eq(channel % p.lines),
        ]
