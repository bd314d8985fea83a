"""VEDA's scheduler: a block of tokens through a layer, Sections IV and V of the paper.

The scheduler issues the memory bursts of a layer, and specifies what the arrays compute with each.
It passes data through unchanged.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import connect_handshake, connect_registered, connect_streams
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit
from hdl.veda.control.attention_sequencer import AttentionSequencer
from hdl.veda.control.cache_writer import CacheWriter
from hdl.veda.control.program import LayerSequencer
from hdl.veda.control.slot_table import SlotTable
from hdl.veda.instructions import Operation, second_operand
from hdl.veda.parameters import VedaParameters

PASSES_AHEAD = 4
"""Passes that may be issued before the arrays start them."""

STEPS_AHEAD = 4
"""Maximum number of steps queued for the voting engine."""


class Scheduler(Unit):
    """Sequence a token, or a block of tokens, through a layer as bursts and passes.

    A layer's first matrix computes a token's keys, values and queries, unless the instruction is
    for attention alone and they are inputs. Keys and values are written into the token's slot.
    Then, for each group of heads, one pass per head computes the scores (inner products), and one
    pass per head the outputs (outer products). The layer's other matrices follow.

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
                "passes": Out(stream.Signature(p.decoded_pass_layout)),
                "steps": Out(stream.Signature(p.voting.step_layout)),
                "victims": In(stream.Signature(p.voting.victim_layout)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "blocks": Out(stream.Signature(p.token_shape)),
                "overflow": Out(1),
                "errors": Out(p.instruction_errors_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Take a task, then let each sequencer issue its part of the layer."""
        m = Module()
        p = self.parameters
        m.submodules.table = table = SlotTable(parameters=p)
        m.submodules.matrices = matrices = LayerSequencer(parameters=p)
        m.submodules.writer = writer = CacheWriter(parameters=p)
        m.submodules.attention = attention = AttentionSequencer(parameters=p)
        m.submodules.passes_ahead = passes = Fifo(shape=p.pass_layout, depth=PASSES_AHEAD)
        m.submodules.steps_ahead = steps = Fifo(shape=p.voting.step_layout, depth=STEPS_AHEAD)
        # Registered: the payloads have long paths, and the ready of the passes arrives late. What
        # selects the operands of all arrays is decoded before the registers.
        m.submodules.pass_registers = registers = RegisterSlice(shape=p.decoded_pass_layout)
        decoded, following = registers.source.payload, passes.sink.payload
        connect_handshake(m, passes.sink, registers.source)
        m.d.comb += [decoded[name].eq(following[name]) for name, _field in p.pass_layout]
        operand = second_operand(following.kind)
        m.d.comb += [decoded.by[name].eq(bit) for name, bit in operand.items()]
        for source, sink in (
            (self.instructions, table.instructions),
            (self.victims, table.victims),
            (table.evictions, self.evictions),
            (table.blocks, self.blocks),
            (self.vectors, writer.vectors),
            (self.projections, writer.projections),
            (writer.writes, self.writes),
            (writer.queries, self.queries),
            (registers.sink, self.passes),
        ):
            connect_streams(m, source, sink)
        connect_registered(m, steps.sink, self.steps)

        # The current task, and the token of its block.
        task = Signal(p.task_layout, reset_less=True)
        index, slot, length = Signal(p.token_shape), Signal(p.slot_bits), Signal(p.length_shape)
        last, full = index == task.last_token, length == p.slots
        step = steps.source.payload
        m.d.comb += [
            self.overflow.eq(table.overflow),
            self.errors.eq(table.errors),
            matrices.halves.payload.task.eq(task),
            step.length.eq(length),
            step.vote.eq(task.vote),
            step.new_slot.eq(slot),
            # The block's last token finds the victims, when all votes of the block are counted.
            step.evictions.eq(Mux(last, task.evictions, 0)),
        ]
        for token in (writer.tokens.payload, attention.tokens.payload):
            m.d.comb += [
                token.task.eq(task),
                token.slot.eq(slot),
                token.length.eq(length),
                token.last.eq(last),
            ]
        # The next token takes the first free slot: only a block's first token reuses a victim's. A
        # token without a free slot overwrites the last one. The block's first token follows its
        # last one.
        later = [
            index.eq(Mux(last, 0, index + 1)),
            slot.eq(Mux(last, task.slot, Mux(full, p.slots - 1, length))),
            length.eq(Mux(last, task.length, Mux(full, length, length + 1))),
        ]
        with m.FSM(name="phase"):
            with m.State("LOOK_UP"):
                found = table.tasks.payload
                m.d.comb += table.tasks.ready.eq(1)
                # Loaded in every cycle: without a valid task the values are not used.
                m.d.sync += [
                    task.eq(found),
                    index.eq(0),
                    slot.eq(found.slot),
                    length.eq(found.length),
                ]
                with m.If(table.tasks.valid):
                    m.next = "WRITE"
                    with m.If(found.operation == Operation.LAYER):
                        m.next = "PROJECT"
            # Rotary angles, and the matrix of keys, values and queries.
            with m.State("PROJECT"):
                m.d.comb += matrices.halves.valid.eq(1)
                connect_streams(m, matrices.reads, self.reads)
                connect_streams(m, matrices.passes, passes.source)
                with m.If(matrices.halves.ready):
                    m.next = "WRITE"
            # All keys and values of the block, before its attention begins.
            with m.State("WRITE"):
                m.d.comb += writer.tokens.valid.eq(1)
                with m.If(writer.tokens.ready):
                    m.d.sync += later
                    with m.If(writer.ends):
                        m.next = "STEP"
            # The voting engine receives a token's step before the token's probabilities can arrive.
            with m.State("STEP"):
                m.d.comb += steps.source.valid.eq(1)
                with m.If(steps.source.ready):
                    m.next = "ATTEND"
            with m.State("ATTEND"):
                m.d.comb += attention.tokens.valid.eq(1)
                connect_streams(m, attention.reads, self.reads)
                connect_streams(m, attention.passes, passes.source)
                with m.If(attention.tokens.ready):
                    m.d.sync += later
                    m.next = "STEP"
                    with m.If(last):
                        m.next = "LOOK_UP"
                        with m.If(task.operation == Operation.LAYER):
                            m.next = "FEED_FORWARD"
            # The output projection, the feed-forward block, and the LM head.
            with m.State("FEED_FORWARD"):
                m.d.comb += [matrices.halves.valid.eq(1), matrices.halves.payload.after.eq(1)]
                connect_streams(m, matrices.reads, self.reads)
                connect_streams(m, matrices.passes, passes.source)
                with m.If(matrices.halves.ready):
                    m.next = "LOOK_UP"
        return m
