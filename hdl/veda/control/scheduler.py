"""VEDA's scheduler: which heads come when, and where each token's keys and values stand.

Sections 4.2 and 5 of the paper. It goes through a layer's heads, orders the bursts of memory and
tells the arrays what they are; it knows nothing of numbers.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import connect_registered, connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.control.layer_sequencer import LayerSequencer
from hdl.veda.control.slot_table import SlotTable
from hdl.veda.parameters import VedaParameters
from hdl.veda.veda_kinds import Operation, PassKind, Space

PASSES_AHEAD = 4
"""Passes that are ordered before the arrays come to them."""

STEPS_AHEAD = 4
"""Steps that the voting engine is told of before it comes to them."""


class Scheduler(Unit):
    """Turn the way of a token, or of a block of them, through a layer into bursts and passes.

    A layer's first matrix gives a token's keys, values and queries, unless the instruction asks
    for attention alone and they come from outside. Keys and values are written into the token's
    slot; then, for each group of heads, come a pass a head for the scores (inner products), and a
    pass a head for the outputs (outer products). While the scores of a group's later heads are
    computed, the softmax of its first heads ends, and while its outputs are, the votes are counted:
    neither costs a cycle. The layer's other matrices follow.

    A block of tokens goes through each matrix together. Its keys and values are all written before
    its attention begins, which each token has by itself, with no token behind it: what a causal
    mask would hide is never read.

    **Latency** 2 cycles from an instruction to its first write; a burst goes out 2 cycles behind
    the last write, or behind the last burst of the block's token before. **Throughput** one write,
    one pass a cycle; an instruction waits while its layer's victim is not known.

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
        text, and `leave`: the hidden state leaves behind this layer. `last_token` is 0 for one
        token; a block of more is ``last_token + 1`` tokens of consecutive positions, of which the
        last finds the victims.
    vectors : In(stream)
        For each instruction of attention alone the token's keys, its values, then its queries, a
        head a lane in each beat; of a block each beat for all tokens before the next.
    projections : In(stream)
        The same for each instruction of a layer.
    writes : Out(stream)
        Keys and values.
    queries : Out(stream)
        The queries, one beat for each pass of scores, and which pass it is.
    reads : Out(stream)
        Bursts of keys, values, weights or angles. A burst must see what was written before it was
        ordered.
    passes : Out(stream)
        What the arrays do with each burst.
    steps : Out(stream)
        What the voting engine is told of each token.
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
                "queries": Out(stream.Signature(p.query_layout)),
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
        m.submodules.ahead = ahead = Fifo(shape=p.pass_layout, depth=PASSES_AHEAD)
        m.submodules.told = told = Fifo(shape=p.voting.layer_layout, depth=STEPS_AHEAD)
        for source, sink in (
            (self.instructions, table.instructions),
            (self.victims, table.victims),
            (table.evictions, self.evictions),
        ):
            connect_streams(m, source, sink)
        # Passes and steps decide a lot in the cycle in which they are seen.
        connect_registered(m, ahead.sink, self.passes)
        connect_registered(m, told.sink, self.steps)
        task = Signal(p.task_layout, reset_less=True)
        # The token of the block whose turn it is, its slot, and the tokens cached with it.
        token, slot, length = Signal(p.token_shape), Signal(p.slot_bits), Signal(p.length_shape)
        token_ends = token == task.last_token
        full = length == p.capacity
        # Behind a block's first token, which may have a victim's, each takes the first free slot.
        later_slot, later_length = Mux(full, p.capacity - 1, length), Mux(full, length, length + 1)
        whole = task.operation == Operation.LAYER
        step = told.source.payload
        m.d.comb += [
            self.overflow.eq(table.overflow),
            step.length.eq(length),
            step.vote.eq(task.vote),
            step.new_slot.eq(slot),
            step.evictions.eq(Mux(token_ends, task.evictions, 0)),
        ]

        # The queries that follow the keys and values; they go on while the next task is looked up.
        asks, asked = Signal(), Signal(data.StructLayout({"whole": 1, "last_token": p.token_shape}))
        writes = self.writes.valid & self.writes.ready
        projected, given = Signal(), Signal()
        m.d.comb += [
            projected.eq(Mux(asks, asked.whole, whole)),
            given.eq(Mux(projected, self.projections.valid, self.vectors.valid)),
            self.queries.valid.eq(given & asks),
            self.queries.payload["item"].eq(self.writes.payload["words"]),
            self.writes.payload["words"].eq(
                Mux(projected, self.projections.payload.as_value(), self.vectors.payload.as_value())
            ),
        ]
        for source, own in ((self.vectors, ~projected), (self.projections, projected)):
            m.d.comb += source.ready.eq(own & Mux(asks, self.queries.ready, writes))
        with m.If(self._place_query(m, asked.last_token)):
            m.d.sync += asks.eq(0)

        m.submodules.matrices = matrices = LayerSequencer(parameters=p)
        half = matrices.halves
        m.d.comb += half.payload.task.eq(task)
        with m.FSM(name="phase"):
            with m.State("LOOKUP"):
                looked_up = table.tasks.payload
                m.d.comb += table.tasks.ready.eq(1)
                m.d.sync += [
                    task.eq(looked_up),
                    token.eq(0),
                    slot.eq(looked_up.slot),
                    length.eq(looked_up.length),
                ]
                with m.If(table.tasks.valid):
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
                with m.If(writes):
                    m.d.sync += [
                        token.eq(Mux(token_ends, 0, token + 1)),
                        slot.eq(Mux(token_ends, task.slot, later_slot)),
                        length.eq(Mux(token_ends, task.length, later_length)),
                    ]
                with m.If(self._write(m, task, slot, token_ends)):
                    m.d.sync += [
                        asks.eq(1),
                        asked.whole.eq(whole),
                        asked.last_token.eq(task.last_token),
                    ]
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += told.source.valid.eq(1)
                with m.If(told.source.ready):
                    m.next = "ISSUE"
            with m.State("ISSUE"):
                m.d.comb += [
                    self.reads.valid.eq(ahead.source.ready),
                    ahead.source.valid.eq(self.reads.ready),
                ]
                with m.If(self._issue(m, task, length, token_ends, ahead.source.payload)):
                    m.d.sync += [
                        token.eq(token + 1),
                        slot.eq(later_slot),
                        length.eq(later_length),
                    ]
                    m.next = "TELL"
                    with m.If(token_ends):
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

    def _place_query(self, m: Module, last_token: Value) -> Value:
        """Say where a query belongs: they come turn by turn, and are read token by token."""
        p, query = self.parameters, self.queries.payload
        token, place = Signal(p.token_shape), Signal(query.place.shape())
        turn = Signal(range(p.rounds))
        token_ends, ends = token == last_token, turn == p.rounds - 1
        m.d.comb += [query.place.eq(place), query.last.eq(ends & token_ends)]
        moves = self.queries.valid & self.queries.ready
        with m.If(moves):
            m.d.sync += [token.eq(token + 1), place.eq(place + p.rounds)]
            with m.If(token_ends):
                later = Mux(ends, 0, turn + 1)
                m.d.sync += [token.eq(0), turn.eq(later), place.eq(later)]
        return moves & query.last

    def _write(self, m: Module, task: Any, slot: Value, token_ends: Value) -> Value:
        """Address the tokens' keys, then their values; return whether the last of them leaves."""
        p = self.parameters
        turn, value = Signal(range(p.kv_rounds)), Signal()
        payload = self.writes.payload
        for channel in range(p.channels):
            heads = [p.lane(turn, channel) for turn in range(p.kv_rounds)]
            kv_head = Value.cast(Array(head % p.kv_heads for head in heads)[turn])
            address = payload.addresses[channel]
            m.d.comb += [
                payload.enables[channel].eq(Array(head < p.kv_heads for head in heads)[turn]),
                *self._address(channel, address, task, slot, value, kv_head),
            ]
        moves = self.writes.valid & self.writes.ready & token_ends
        ends = turn == p.kv_rounds - 1
        with m.If(moves):
            m.d.sync += [turn.eq(Mux(ends, 0, turn + 1)), value.eq(value ^ ends)]
        return moves & ends & value

    def _issue(self, m: Module, task: Any, length: Value, token_ends: Value, header: Any) -> Value:
        """Go through a token's groups; return whether the last pass leaves."""
        p = self.parameters
        turn, first = Signal(range(p.rounds)), Signal(range(p.rounds))
        outer = Signal()
        last = turn == p.rounds - 1
        burst = self.reads.payload
        m.d.comb += [
            burst.beats.eq(length),
            header.beats.eq(length),
            header.kind.eq(Mux(outer, PassKind.OUTPUTS, PassKind.SCORES)),
            header.vote.eq(task.vote),
            header.operation.eq(task.operation),
            header.last_token.eq(task.last_token),
            header.final.eq(last & ~outer & token_ends),
        ]
        for channel in range(p.channels):
            heads = [p.kv_head(turn, channel) for turn in range(p.rounds)]
            kv_head = Value.cast(Array(heads)[turn])
            address, first_slot = burst.addresses[channel], Const(0, p.slot_bits)
            m.d.comb += self._address(channel, address, task, first_slot, outer, kv_head)
        moves = self.reads.valid & self.reads.ready
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
