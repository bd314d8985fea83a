"""VEDA's scheduler: the order of heads, and the addresses of each token's keys and values.

Sections IV and V of the paper. The scheduler steps through a layer's heads, issues the memory
bursts, and specifies what the arrays compute with each. It passes data through unchanged.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import connect_registered, connect_streams
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit
from hdl.veda.control.program import LayerSequencer
from hdl.veda.control.slot_table import SlotTable
from hdl.veda.instructions import Operation, PassKind, Space
from hdl.veda.parameters import VedaParameters

PASSES_AHEAD = 4
"""Passes that may be issued before the arrays start them."""

STEPS_AHEAD = 4
"""Maximum number of steps queued for the voting engine."""


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A task, and the token of its block that is being processed.

    Parameters
    ----------
    task : Any
        The task, in a register.
    token, slot, length : Signal
        The token's index in the block, its slot, and the number of cached tokens including it.
    slots : int
        Slots of a layer.
    """

    task: Any
    token: Signal
    slot: Signal
    length: Signal
    slots: int

    @property
    def token_ends(self) -> Value:
        """Whether the token is the block's last."""
        return self.token == self.task.last_token

    @property
    def whole(self) -> Value:
        """Whether the task is a whole layer."""
        return self.task.operation == Operation.LAYER

    @property
    def later_slot(self) -> Value:
        """The first free slot, for the next token; only a block's first token reuses a victim's.

        A token without a free slot overwrites the last slot.
        """
        return Mux(self.length == self.slots, self.slots - 1, self.length)

    @property
    def later_length(self) -> Value:
        """The number of cached tokens including the next one."""
        return Mux(self.length == self.slots, self.length, self.length + 1)


@dataclass(frozen=True, kw_only=True)
class _Queries:
    """The queries of a block, which follow its keys and values.

    Parameters
    ----------
    pending : Signal
        Queries have yet to arrive.
    source : Any
        Whether the projections are their source, and the index of the last token of their block.
    offered : Signal
        A key, a value or a query is valid.
    """

    pending: Signal
    source: Any
    offered: Signal


class Scheduler(Unit):
    """Sequence a token, or a block of tokens, through a layer as bursts and passes.

    A layer's first matrix computes a token's keys, values and queries, unless the instruction is
    for attention alone and they are inputs. Keys and values are written into the token's slot.
    Then, for each group of heads, one pass per head computes the scores (inner products), and one
    pass per head the outputs (outer products). The softmax of the group's first heads completes
    while the scores of its later heads are computed, and the votes are counted while its outputs
    are computed: neither takes extra cycles. The layer's other matrices follow.

    A block of tokens passes through each matrix together. All its keys and values are written
    before its attention begins. Attention is computed per token, over the cached tokens up to and
    including itself: what a causal mask would hide is never read.

    **Latency** 2 cycles from an instruction to its first write. A burst is issued 2 cycles after
    the last write, or after the last burst of the block's previous token. **Throughput** one write
    and one pass per cycle. An instruction waits until its layer's victim is known.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions : In(stream)
        A task for a block of ``last_token + 1`` tokens, see `instruction_layout`.
    vectors : In(stream)
        For each instruction of attention alone: keys, then values, then queries, one head per lane
        in each beat; for a block, each beat arrives for all tokens before the next beat.
    projections : In(stream)
        The same, computed by the arrays, for each instruction of a whole layer.
    writes : Out(stream)
        Keys and values, with their addresses.
    queries : Out(stream)
        Queries, one beat for each pass of scores, with the pass's place in the block.
    reads : Out(stream)
        Bursts of keys, values, weights or angles. A burst must return all earlier writes.
    passes : Out(stream)
        The arrays' computation for each burst.
    steps : Out(stream)
        The voting engine's work for each token.
    victims : In(stream)
        Victims that the voting engine found.
    evictions : Out(stream)
        Layer and slot of each victim that was found.
    blocks : Out(stream)
        Index of the last token of each block whose hidden states are inputs.
    overflow : Out(1)
        A token without a free slot was accepted and assigned the last slot. Held until reset.
    errors : Out(struct)
        Held until reset. `block`: an instruction had more tokens than a block; the excess tokens
        are ignored. `position`: a token's position has no rotary angles; its rotation is wrong.
        `trimmed`: a layer was used without `load` after several victims; its tokens are appended.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `VedaParameters`.
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
                "blocks": Out(stream.Signature(p.token_shape)),
                "overflow": Out(1),
                "errors": Out(p.instruction_errors_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Look up the slot, write keys and values, issue passes."""
        m = Module()
        p = self.parameters
        m.submodules.table = table = SlotTable(parameters=p)
        m.submodules.passes_ahead = passes = Fifo(shape=p.pass_layout, depth=PASSES_AHEAD)
        m.submodules.steps_ahead = steps = Fifo(shape=p.voting.layer_layout, depth=STEPS_AHEAD)
        for source, sink in (
            (self.instructions, table.instructions),
            (self.victims, table.victims),
            (table.evictions, self.evictions),
            (table.blocks, self.blocks),
        ):
            connect_streams(m, source, sink)
        # Registered: the payloads have long paths, and the ready of the passes arrives late.
        m.submodules.pass_registers = registers = RegisterSlice(shape=p.pass_layout)
        connect_streams(m, passes.sink, registers.source)
        connect_streams(m, registers.sink, self.passes)
        connect_registered(m, steps.sink, self.steps)
        block = _Block(
            task=Signal(p.task_layout, name="task", reset_less=True),
            token=Signal(p.token_shape, name="token"),
            slot=Signal(p.slot_bits, name="slot"),
            length=Signal(p.length_shape, name="length"),
            slots=p.slots,
        )
        step = steps.source.payload
        m.d.comb += [
            self.overflow.eq(table.overflow),
            self.errors.eq(table.errors),
            step.length.eq(block.length),
            step.vote.eq(block.task.vote),
            step.new_slot.eq(block.slot),
            # The block's last token finds the victims, when all votes of the block are counted.
            step.evictions.eq(Mux(block.token_ends, block.task.evictions, 0)),
        ]
        # Keys, values and queries arrive sequentially at one port, and leave through one port each.
        queries = self._forward(m, block)
        m.submodules.matrices = matrices = LayerSequencer(parameters=p)
        m.d.comb += matrices.halves.payload.task.eq(block.task)
        with m.FSM(name="phase"):
            self._look_up(m, table.tasks, block)
            with m.State("BEFORE"):
                self._order_half(m, matrices, passes.source, behind=0, after="WRITE")
            self._write_tokens(m, block, queries)
            # The voting engine receives a token's step before the token's probabilities can arrive.
            with m.State("STEP"):
                m.d.comb += steps.source.valid.eq(1)
                with m.If(steps.source.ready):
                    m.next = "ISSUE"
            self._attend(m, block, passes.source)
            with m.State("BEHIND"):
                self._order_half(m, matrices, passes.source, behind=1, after="LOOKUP")
        return m

    def _forward(self, m: Module, block: _Block) -> _Queries:
        """Route keys and values to the writes, and the queries that follow them to `queries`.

        They still arrive while the next task is looked up: a separate record holds their source.
        """
        p = self.parameters
        queries = _Queries(
            pending=Signal(name="queries_pending"),
            source=Signal(
                data.StructLayout({"whole": 1, "last_token": p.token_shape}), name="queries_source"
            ),
            offered=Signal(name="vectors_offered"),
        )
        projected = Signal()
        m.d.comb += [
            projected.eq(Mux(queries.pending, queries.source.whole, block.whole)),
            queries.offered.eq(Mux(projected, self.projections.valid, self.vectors.valid)),
            self.queries.valid.eq(queries.offered & queries.pending),
            self.queries.payload.item.eq(self.writes.payload.words),
            self.writes.payload.words.eq(
                Mux(projected, self.projections.payload.as_value(), self.vectors.payload.as_value())
            ),
        ]
        written = self.writes.valid & self.writes.ready
        # The instruction selects the source, not the `valid` of the sources.
        for stream_in, chosen in ((self.vectors, ~projected), (self.projections, projected)):
            taken = Mux(queries.pending, self.queries.ready, written)
            m.d.comb += stream_in.ready.eq(chosen & taken)
        with m.If(self._place_query(m, queries.source.last_token)):
            m.d.sync += queries.pending.eq(0)
        return queries

    def _look_up(self, m: Module, tasks: Any, block: _Block) -> None:
        """LOOKUP: take the next task once its layer's slot is known."""
        task = tasks.payload
        with m.State("LOOKUP"):
            m.d.comb += tasks.ready.eq(1)
            # Loaded in every cycle: without a valid task the values are not used.
            m.d.sync += [
                block.task.eq(task),
                block.token.eq(0),
                block.slot.eq(task.slot),
                block.length.eq(task.length),
            ]
            with m.If(tasks.valid):
                m.next = "WRITE"
                with m.If(task.operation == Operation.LAYER):
                    m.next = "BEFORE"

    def _write_tokens(self, m: Module, block: _Block, queries: _Queries) -> None:
        """WRITE: write each beat of keys, then of values, for all tokens in order."""
        task, token_ends = block.task, block.token_ends
        with m.State("WRITE"):
            m.d.comb += self.writes.valid.eq(queries.offered & ~queries.pending)
            with m.If(self.writes.valid & self.writes.ready):
                m.d.sync += [
                    block.token.eq(Mux(token_ends, 0, block.token + 1)),
                    block.slot.eq(Mux(token_ends, task.slot, block.later_slot)),
                    block.length.eq(Mux(token_ends, task.length, block.later_length)),
                ]
            with m.If(self._write(m, task, block.slot, token_ends)):
                m.d.sync += [
                    queries.pending.eq(1),
                    queries.source.whole.eq(block.whole),
                    queries.source.last_token.eq(task.last_token),
                ]
                m.next = "STEP"

    def _attend(self, m: Module, block: _Block, passes: Any) -> None:
        """ISSUE: a token's attention, followed by the next token's step or the block's end."""
        with m.State("ISSUE"):
            # A burst and its pass are transferred in the same cycle.
            m.d.comb += [
                self.reads.valid.eq(passes.ready),
                passes.valid.eq(self.reads.ready),
            ]
            with m.If(self._issue(m, block, passes.payload)):
                m.d.sync += [
                    block.token.eq(block.token + 1),
                    block.slot.eq(block.later_slot),
                    block.length.eq(block.later_length),
                ]
                m.next = "STEP"
                with m.If(block.token_ends):
                    m.next = "LOOKUP"
                    with m.If(block.whole):
                        m.next = "BEHIND"

    def _order_half(
        self, m: Module, matrices: LayerSequencer, passes: Any, *, behind: int, after: str
    ) -> None:
        """`BEFORE`, `BEHIND`: issue bursts and passes of the matrices before or after attention."""
        m.d.comb += [matrices.halves.valid.eq(1), matrices.halves.payload.behind.eq(behind)]
        connect_streams(m, matrices.reads, self.reads)
        connect_streams(m, matrices.passes, passes)
        with m.If(matrices.halves.ready):
            m.next = after

    def _place_query(self, m: Module, last_token: Value) -> Value:
        """Assign each query its place: they arrive round by round, and are read token by token."""
        p, query = self.parameters, self.queries.payload
        # A place is token * rounds + head_round, incremented rather than multiplied.
        token, place = Signal(p.token_shape), Signal(query.place.shape())
        head_round = Signal(range(p.rounds))
        token_ends, ends = token == last_token, head_round == p.rounds - 1
        m.d.comb += [query.place.eq(place), query.last.eq(ends & token_ends)]
        moves = self.queries.valid & self.queries.ready
        with m.If(moves):
            m.d.sync += [token.eq(token + 1), place.eq(place + p.rounds)]
            with m.If(token_ends):
                later = Mux(ends, 0, head_round + 1)
                m.d.sync += [token.eq(0), head_round.eq(later), place.eq(later)]
        return moves & query.last

    def _write(self, m: Module, task: Any, slot: Value, token_ends: Value) -> Value:
        """Address the tokens' keys, then values; return whether the last one is transferred."""
        p = self.parameters
        head_round, value = Signal(range(p.kv_rounds)), Signal()
        payload = self.writes.payload
        # A lane without a head in the last round writes nothing.
        for channel in range(p.channels):
            heads = [p.lane(head_round, channel) for head_round in range(p.kv_rounds)]
            kv_head = Value.cast(Array(head % p.kv_heads for head in heads)[head_round])
            address = payload.addresses[channel]
            m.d.comb += [
                payload.enables[channel].eq(Array(head < p.kv_heads for head in heads)[head_round]),
                *self._address(channel, address, task, slot, value, kv_head),
            ]
        moves = self.writes.valid & self.writes.ready & token_ends
        ends = head_round == p.kv_rounds - 1
        with m.If(moves):
            m.d.sync += [head_round.eq(Mux(ends, 0, head_round + 1)), value.eq(value ^ ends)]
        return moves & ends & value

    def _issue(self, m: Module, block: _Block, header: Any) -> Value:
        """Step through a token's groups; return whether the last pass is transferred."""
        p, task, length = self.parameters, block.task, block.length
        head_round, first = Signal(range(p.rounds)), Signal(range(p.rounds))
        # A group's scores precede its outputs, by which time its first softmax is complete.
        outer = Signal()
        last = head_round == p.rounds - 1
        burst = self.reads.payload
        m.d.comb += [
            burst.beats.eq(length),
            header.beats.eq(length),
            header.kind.eq(Mux(outer, PassKind.OUTPUTS, PassKind.SCORES)),
            header.vote.eq(task.vote),
            header.operation.eq(task.operation),
            header.last_token.eq(task.last_token),
            header.final.eq(last & ~outer & block.token_ends),
        ]
        # The key/value head that a channel reads in each round is a constant; query heads may share
        # it.
        for channel in range(p.channels):
            heads = [p.kv_head(head_round, channel) for head_round in range(p.rounds)]
            kv_head = Value.cast(Array(heads)[head_round])
            address, first_slot = burst.addresses[channel], Const(0, p.slot_bits)
            m.d.comb += self._address(channel, address, task, first_slot, outer, kv_head)
        moves = self.reads.valid & self.reads.ready
        fills_group = Array(number % p.group == p.group - 1 for number in range(p.rounds))
        closes = fills_group[head_round] | last
        # After a group's last scores return to its first head; after its last outputs, go to the
        # next group.
        with m.If(moves):
            m.d.sync += head_round.eq(head_round + 1)
            with m.If(closes & ~outer):
                m.d.sync += [outer.eq(1), head_round.eq(first)]
            with m.Elif(closes):
                m.d.sync += [outer.eq(0), first.eq(head_round + 1)]
            with m.If(last & outer):
                m.d.sync += [head_round.eq(0), first.eq(0)]
        return moves & last & outer

    def _address(
        self, channel: int, address: Any, task: Any, slot: Value, value: Value, kv_head: Value
    ) -> list[Any]:
        """Fill in the address of a line of keys or values."""
        p = self.parameters
        # The fields are concatenated: no address is computed by addition.
        part = Const(channel % p.lines, p.cache_line["part"].width)
        kv_head_bits = kv_head[: p.cache_line["kv_head"].width]
        return [
            address.space.eq(Space.CACHE),
            address.layer.eq(task.layer),
            address.line.eq(Cat(slot, part, value, kv_head_bits)),
        ]
