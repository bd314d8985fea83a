"""VEDA's scheduler: which heads come when, and where each token's keys and values stand.

Sections 4.2 and 5 of the paper. It goes through a layer's heads, orders the bursts of memory and
tells the arrays what they are; it knows nothing of numbers.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.stream.fall_through_fifo import FallThroughFifo
from hdl.unit import Unit
from hdl.veda.layer_sequencer import LayerSequencer
from hdl.veda.slot_table import SlotTable
from hdl.veda.stream_links import connect_streams
from hdl.veda.veda_kinds import Operation, PassKind, Space
from hdl.veda.veda_parameters import VedaParameters

PASSES_AHEAD = 4
"""Passes that are ordered before the arrays come to them."""

STEPS_AHEAD = 4
"""Steps that the voting engine is told of before it comes to them."""


class Scheduler(Unit):
    """Turn one token's way through one layer into writes, bursts and passes.

    A layer's first matrix gives the token's keys, values and queries, unless the instruction asks
    for attention alone and they come from outside. Keys and values are written into the token's
    slot; then, for each group of heads, come a pass a head for the scores (inner products), and a
    pass a head for the outputs (outer products). While the scores of a group's later heads are
    computed, the softmax of its first heads ends, and while its outputs are, the votes are counted:
    neither costs a cycle. The layer's other matrices follow.

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
        `operation`; `layer`; with `load`, `length` tokens are in the cache before this one, else
        what there was; `vote`: the token votes; `evictions`: victims to find, of which one alone
        gives its slot to the layer's next token. Of a layer also the token's `position` in its
        text, and `leave`: the hidden state leaves behind this layer.
    vectors : In(stream)
        For each instruction of attention alone the token's keys, its values, then its queries, a
        head a lane in each beat.
    projections : In(stream)
        The same for each instruction of a layer.
    writes : Out(stream)
        Keys and values.
    queries : Out(stream)
        The queries, one beat for each pass of scores.
    reads : Out(stream)
        Bursts of keys, values, weights or angles. A burst must see what was written before it was
        ordered.
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
                "projections": In(stream.Signature(p.beat_layout)),
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
        whole = task.operation == Operation.LAYER
        # The queries that follow the keys and values; they go on while the next task is looked up.
        queries_left, their_source = Signal(range(p.rounds + 1)), Signal()
        asks = queries_left != 0
        writes = self.writes.valid & self.writes.ready
        projected, given = Signal(), Signal()
        m.d.comb += [
            projected.eq(Mux(asks, their_source, whole)),
            given.eq(Mux(projected, self.projections.valid, self.vectors.valid)),
            self.queries.valid.eq(given & asks),
            self.queries.payload.eq(self.writes.payload["words"]),
            self.writes.payload["words"].eq(
                Mux(projected, self.projections.payload.as_value(), self.vectors.payload.as_value())
            ),
        ]
        for source, own in ((self.vectors, ~projected), (self.projections, projected)):
            m.d.comb += source.ready.eq(own & Mux(asks, self.queries.ready, writes))
        with m.If(self.queries.valid & self.queries.ready):
            m.d.sync += queries_left.eq(queries_left - 1)

        m.submodules.matrices = matrices = LayerSequencer(parameters=p)
        half = matrices.halves
        m.d.comb += half.payload.task.eq(task)
        with m.FSM(name="phase"):
            with m.State("LOOKUP"):
                m.d.comb += [
                    table.tasks.ready.eq(told.source.ready),
                    told.source.valid.eq(table.tasks.valid),
                ]
                m.d.sync += task.eq(table.tasks.payload)
                with m.If(table.tasks.valid & told.source.ready):
                    m.next = "WRITE"
                    with m.If(table.tasks.payload.operation == Operation.LAYER):
                        m.next = "BEFORE"
            with m.State("BEFORE"):
                m.d.comb += half.valid.eq(1)
                self._pass_on(m, matrices, ahead.source)
                with m.If(half.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.writes.valid.eq(given & ~asks)
                with m.If(self._write(m, task)):
                    m.d.sync += [queries_left.eq(p.rounds), their_source.eq(whole)]
                    m.next = "ISSUE"
            with m.State("ISSUE"):
                m.d.comb += [
                    self.reads.valid.eq(ahead.source.ready),
                    ahead.source.valid.eq(self.reads.ready),
                ]
                with m.If(self._issue(m, task, ahead.source.payload)):
                    m.next = "LOOKUP"
                    with m.If(whole):
                        m.next = "BEHIND"
            with m.State("BEHIND"):
                m.d.comb += [half.valid.eq(1), half.payload.behind.eq(1)]
                self._pass_on(m, matrices, ahead.source)
                with m.If(half.ready):
                    m.next = "LOOKUP"
        return m

    def _pass_on(self, m: Module, matrices: LayerSequencer, ahead: Any) -> None:
        """Let the matrices' bursts and passes out."""
        connect_streams(m, matrices.reads, self.reads)
        connect_streams(m, matrices.passes, ahead)

    def _write(self, m: Module, task: Any) -> Value:
        """Address a token's keys, then its values; return whether the last of them leaves."""
        p = self.parameters
        turn, value = Signal(range(p.kv_rounds)), Signal()
        payload = self.writes.payload
        for channel in range(p.channels):
            heads = [p.lane(turn, channel) for turn in range(p.kv_rounds)]
            kv_head = Value.cast(Array(head % p.kv_heads for head in heads)[turn])
            address = payload.addresses[channel]
            m.d.comb += [
                payload.enables[channel].eq(Array(head < p.kv_heads for head in heads)[turn]),
                *self._address(channel, address, task, task.slot, value, kv_head),
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
        outer = Signal()
        burst = self.reads.payload
        m.d.comb += [
            burst.beats.eq(task.length),
            header.beats.eq(task.length),
            header.kind.eq(Mux(outer, PassKind.OUTPUTS, PassKind.SCORES)),
            header.vote.eq(task.vote),
            header.operation.eq(task.operation),
        ]
        for channel in range(p.channels):
            heads = [p.kv_head(turn, channel) for turn in range(p.rounds)]
            kv_head = Value.cast(Array(heads)[turn])
            address, first_slot = burst.addresses[channel], Const(0, p.slot_bits)
            m.d.comb += self._address(channel, address, task, first_slot, outer, kv_head)
        moves = self.reads.valid & self.reads.ready
        last = turn == p.rounds - 1
        closes = Array(turn % p.group == p.group - 1 for turn in range(p.rounds))[turn] | last
        with m.If(moves):
            m.d.sync += turn.eq(turn + 1)
            with m.If(closes & ~outer):
                m.d.sync += [outer.eq(1), turn.eq(first)]
            with m.Elif(closes):
                m.d.sync += [outer.eq(0), first.eq(turn + 1)]
            with m.If(last & outer):
                m.d.sync += [turn.eq(0), first.eq(0)]
        return moves & last & outer

    def _address(
        self, channel: int, address: Any, task: Any, slot: Value, value: Value, kv_head: Value
    ) -> list[Any]:
        """Fill in the address of a line of keys or values."""
        p = self.parameters
        part = Const(channel % p.lines, p.cache_line["part"].width)
        kv_head_bits = kv_head[: p.cache_line["kv_head"].width]
        return [
            address.space.eq(Space.CACHE),
            address.layer.eq(task.layer),
            address.line.eq(Cat(slot, part, value, kv_head_bits)),
        ]
