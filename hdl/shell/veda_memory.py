"""VEDA with burst ports: its lines, vote counts and results are in memory."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.shell.line_reads import LineReads
from hdl.shell.line_writes import LineWrites
from hdl.shell.shell_parameters import TOKEN_BITS
from hdl.shell.veda_axi_parameters import KIND_FIRST, TokenKind, VedaAxiParameters
from hdl.shell.vote_counts import VoteCounts
from hdl.shell.word_writer import WordWriter
from hdl.stream.arbiter import Arbiter
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit
from hdl.veda.instructions import Leave, Operation, Space
from hdl.veda.veda import Veda

PENDING_BITS = 32
"""Bits of the number of results in flight."""


class VedaMemory(Unit):
    """VEDA whose streams to memory are burst ports, and whose results are tokens and words.

    The outputs of attention alone and the hidden states that leave are written to consecutive
    words, from address 0 on after `restart`.

    **Latency**, **Throughput** those of `Veda`; the vote counts of a token also wait until those of
    the token before it are visible.

    Parameters
    ----------
    parameters : VedaAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions, vectors, states : In(stream)
        As `instructions`, `vectors` and `states_in` of `Veda`.
    vote_steps : In(stream)
        The places of the vote counts of each token of each instruction, in order.
    <port> : Out(BurstReadPort or BurstWritePort)
        The other ports of `VedaAxiParameters.ports`.
    line_reads_<channel>_region : Out(Space)
        The region of the port's request, an index of `SPACES`.
    written, counted : In(1)
        All words written at `cache_writes`, and at `count_writes`, are visible.
    restart : In(1)
        The next result is at address 0.
    tokens : Out(stream)
        Predictions, two tokens each, and victims; see `TokenKind`.
    errors : Out(struct)
        `errors`, `overflow`, `flags` and `undefined` of `Veda`.
    clear_flags : In(1)
        As in `Veda`.
    idle : Out(1)
        All results of all instructions are output. The states of an instruction whose `leave` is
        `Leave.STAY` are no result.
    """

    def __init__(self, *, parameters: VedaAxiParameters) -> None:
        self.parameters = p = parameters
        veda = p.veda
        names = (*veda.errors_layout.members, "overflow", *veda.softmax.flags_layout.members)
        self.errors_layout = data.StructLayout(dict.fromkeys((*names, "undefined"), 1))
        super().__init__(
            {
                "instructions": In(stream.Signature(veda.instruction_layout)),
                "vote_steps": In(stream.Signature(p.step_layout)),
                "vectors": In(stream.Signature(veda.beat_layout)),
                "states": In(stream.Signature(veda.state_layout)),
                **p.core_ports(),
                **{f"{name}_region": Out(Space) for name in p.line_ports},
                "written": In(1),
                "counted": In(1),
                "restart": In(1),
                "tokens": Out(stream.Signature(TOKEN_BITS)),
                "errors": Out(self.errors_layout),
                "clear_flags": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect VEDA to the address generators, and count its results."""
        m = Module()
        p = self.parameters
        m.submodules.veda = veda = Veda(parameters=p.veda)
        m.submodules.reads = reads = LineReads(parameters=p)
        m.submodules.writes = writes = LineWrites(parameters=p)
        m.submodules.votes = votes = VoteCounts(parameters=p)
        for source, sink in (
            (self.instructions, veda.instructions),
            (self.vectors, veda.vectors),
            (self.states, veda.states_in),
            (veda.reads, reads.reads),
            (reads.words, veda.words),
            (veda.writes, writes.writes),
            (self.vote_steps, votes.steps),
            (votes.counts_in, veda.counts_in),
            (veda.counts_out, votes.counts_out),
        ):
            connect_streams(m, source, sink)
        lines = [getattr(self, name) for name in p.line_ports]
        for inner, outer in (
            *zip(reads.ports, lines, strict=True),
            (votes.reads, self.count_reads),
        ):
            connect_streams(m, inner.requests, outer.requests)
            connect_streams(m, outer.words, inner.words)
        for number, name in enumerate(p.line_ports):
            m.d.comb += getattr(self, f"{name}_region").eq(reads.regions[number])
        for inner, outer in ((writes.port, self.cache_writes), (votes.writes, self.count_writes)):
            self._connect_writes(m, inner, outer)
        for name, items, outer in (
            ("outputs", veda.outputs, self.output_writes),
            ("states_out", veda.states_out, self.state_writes),
        ):
            m.submodules[name] = writer = WordWriter(
                address_bits=p.address_bits, longest=p.longest, shape=len(Value.cast(items.payload))
            )
            connect_handshake(m, items, writer.items)
            m.d.comb += [
                writer.items.payload.eq(Value.cast(items.payload)),
                writer.restart.eq(self.restart),
            ]
            self._connect_writes(m, writer.port, outer)
        self._output_tokens(m, veda)
        pending = self._pending(m, veda)
        m.d.comb += [
            veda.threshold_coefficients.mean.eq(p.mean),
            veda.threshold_coefficients.deviation.eq(p.deviation),
            veda.clear_flags.eq(self.clear_flags),
            # A write that VEDA offers precedes the reads that it offers.
            reads.written.eq(self.written & ~veda.writes.valid),
            votes.written.eq(self.counted),
            Value.cast(self.errors).eq(
                Cat(Value.cast(veda.errors), veda.overflow, Value.cast(veda.flags), veda.undefined)
            ),
            self.idle.eq((pending == 0) & votes.idle & ~veda.writes.valid & ~self.tokens.valid),
        ]
        return m

    def _connect_writes(self, m: Module, inner: Any, outer: Any) -> None:
        """Connect a port of writes to the port of this unit."""
        connect_streams(m, inner.requests, outer.requests)
        connect_streams(m, inner.words, outer.words)

    def _output_tokens(self, m: Module, veda: Veda) -> None:
        """Output victims and, with an LM head, predictions; mark each token with its kind."""
        victims = veda.evictions
        victim = Value.cast(victims.payload) | TokenKind.VICTIM.value << KIND_FIRST
        if not self.parameters.veda.vocabulary_size:
            connect_handshake(m, victims, self.tokens)
            m.d.comb += self.tokens.payload.eq(victim)
            return
        m.submodules.pairs = pairs = Serialiser(shape=TOKEN_BITS, items=2)
        m.submodules.arbiter = arbiter = Arbiter(shape=TOKEN_BITS, sources=2)
        found, group = veda.predictions, pairs.groups.payload
        connect_handshake(m, found, pairs.groups)
        connect_handshake(m, pairs.items, arbiter.sources[0])
        connect_handshake(m, victims, arbiter.sources[1])
        connect_handshake(m, arbiter.sink, self.tokens)
        m.d.comb += [
            group["items"][0].eq(found.payload.token),
            group["items"][1].eq(Value.cast(found.payload.sum) | TokenKind.SUM.value << KIND_FIRST),
            arbiter.sources[0].payload["item"].eq(pairs.items.payload["item"]),
            arbiter.sources[1].payload["item"].eq(victim),
            self.tokens.payload.eq(arbiter.sink.payload["item"]),
        ]

    def _pending(self, m: Module, veda: Veda) -> Signal:
        """Return the number of results that VEDA has not output.

        Each token of an instruction has an output, a hidden state or a prediction; each victim is a
        further result.
        """
        p, one = self.parameters.veda, self.instructions.payload
        pending = Signal(PENDING_BITS)
        tokens = one.last_token + 1
        leaves = Value.cast(one.leave) != Leave.STAY.value
        # Attention alone outputs all heads of a token in beats; a layer has one result per token.
        own = Mux(one.operation == Operation.LAYER, tokens * leaves, tokens * p.rounds)
        # An instruction is counted when VEDA accepts it, and a result when it is accepted outside:
        # the number is never negative.
        begins = self.instructions.valid & self.instructions.ready
        ends = [
            veda.outputs.valid & veda.outputs.ready,
            veda.evictions.valid & veda.evictions.ready,
        ]
        left = veda.states_out
        ends.append(left.valid & left.ready & left.payload.last)
        if p.vocabulary_size:
            ends.append(veda.predictions.valid & veda.predictions.ready)
        m.d.sync += pending.eq(
            pending + Mux(begins, own + one.evictions, 0) - sum(ends[1:], start=ends[0])
        )
        return pending
