"""LAD with burst ports: its weights, the rows of its heads and its states are in memory."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.lad import FROM_MEMORY, TO_MEMORY, Lad
from hdl.memory.memory_fifo import MemoryFifo
from hdl.shell import head_reads, head_writes
from hdl.shell.groups_ahead import GroupsAhead
from hdl.shell.head_reads import HeadReads
from hdl.shell.head_writes import HeadWrites
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.shell.lad_tokens import LadTokens
from hdl.shell.unit_weights import UnitWeights
from hdl.shell.word_writer import WordWriter
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

ENDS = 3
"""Streams whose last payload ends a step: centres, marks and columns.

A group of marks follows all counters of its positions.
"""


class LadMemory(Unit):
    """LAD whose streams to memory are burst ports.

    A token begins when all rows that earlier tokens wrote are visible: a head has one step per
    token, and of its own writes, a step reads the newest key and value only.

    **Latency**, **Throughput** those of `Lad`; a layer also takes two reads that depend on each
    other, with several tiles three.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    tokens : In(stream)
        The tokens, see `LadAxiParameters.token_layout`.
    slices : In(stream)
        The slices of their cosines, sines and hidden states, in the order of `Lad.slices`.
    <port> : Out(BurstReadPort or BurstWritePort)
        The other ports of `LadAxiParameters.ports`.
    row_writes_region : Out(1)
        The region of the port's request.
    written : In(1)
        All words written at the ports of `hdl.shell.head_writes.PORTS` are visible.
    appended : In(1)
        All words written at `row_writes` are visible.
    restart : In(1)
        The next output is at address 0.
    predictions : Out(stream)
        As in `Lad`, with an LM head.
    errors : Out(struct)
        `length`: a token's length is 0 or above the capacity.
    clear_flags : In(1)
        Clear `errors`.
    idle : Out(1)
        All results of all begun tokens are output, and all changes are at their ports.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        lad = p.lad
        predicting = {"predictions": Out(stream.Signature(lad.prediction_layout))}
        super().__init__(
            {
                "tokens": In(stream.Signature(p.token_layout)),
                "slices": In(stream.Signature(lad.tile.vector.vector_layout.size)),
                **p.core_ports(),
                "row_writes_region": Out(1),
                "written": In(1),
                "appended": In(1),
                "restart": In(1),
                **(predicting if lad.vocabulary_size else {}),
                "errors": Out(data.StructLayout({"length": 1})),
                "clear_flags": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect LAD to the address generators."""
        m = Module()
        p = self.parameters
        m.submodules.lad = lad = Lad(parameters=p.lad)
        m.submodules.commands = tokens = LadTokens(parameters=p)
        m.submodules.unit_weights = weights = UnitWeights(parameters=p)
        m.submodules.rows = rows = HeadReads(parameters=p)
        m.submodules.changes = changes = HeadWrites(parameters=p)
        for source, sink in (
            (self.tokens, tokens.tokens),
            (self.slices, tokens.slices),
            (tokens.given, lad.slices),
            (tokens.requests, weights.requests),
            (weights.weights, lad.weights),
        ):
            connect_streams(m, source, sink)
        self._request_groups(m, lad, tokens, rows)
        for name in TO_MEMORY:
            if name != "group_requests":
                part = rows if name in head_reads.READS else changes
                connect_streams(m, getattr(lad, name), getattr(part, name))
        for name in FROM_MEMORY[1:]:
            connect_streams(m, getattr(rows, name), getattr(lad, name))
        reads = {name: getattr(rows, name) for name in head_reads.PORTS}
        reads["norm_weight_reads"] = tokens.norms
        reads |= dict(zip(p.weight_ports, weights.ports, strict=True))
        for name, inner in reads.items():
            outer = getattr(self, name)
            connect_streams(m, inner.requests, outer.requests)
            connect_streams(m, outer.words, inner.words)
        for name in head_writes.PORTS:
            self._connect_writes(m, getattr(changes, name), getattr(self, name))
        states = self._write_states(m, lad)
        if p.lad.vocabulary_size:
            connect_streams(m, lad.predictions, self.predictions)
        open_steps = self._open_steps(m, lad)
        m.d.comb += [
            self.row_writes_region.eq(changes.row_writes_region),
            rows.appended.eq(self.appended),
            tokens.written.eq(self.written & (open_steps == 0)),
            tokens.clear_flags.eq(self.clear_flags),
            self.errors.length.eq(tokens.illegal),
            self.idle.eq((self._pending(m, tokens, states) == 0) & (open_steps == 0)),
        ]
        return m

    def _request_groups(self, m: Module, lad: Lad, tokens: LadTokens, rows: HeadReads) -> None:
        """Request G of all steps of a token when it begins; with several tiles, when LAD does."""
        if self.parameters.lad.tiles > 1:
            connect_streams(m, lad.group_requests, rows.group_requests)
            m.d.comb += tokens.grouped.eq(1)
            return
        m.submodules.groups_ahead = ahead = GroupsAhead(parameters=self.parameters)
        connect_streams(m, ahead.requests, rows.group_requests)
        m.d.comb += [
            ahead.token.eq(self.tokens.payload),
            ahead.begun.eq(tokens.begun),
            ahead.ends.eq(tokens.ends),
            tokens.grouped.eq(ahead.complete),
            # The same requests in the same order.
            lad.group_requests.ready.eq(1),
        ]

    def _connect_writes(self, m: Module, inner: Any, outer: Any) -> None:
        """Connect a port of writes to the port of this unit."""
        connect_streams(m, inner.requests, outer.requests)
        connect_streams(m, inner.words, outer.words)

    def _write_states(self, m: Module, lad: Lad) -> stream.Interface:
        """Write the hidden states to consecutive words; return the stream of written ones."""
        p = self.parameters
        layout = p.lad.state_layout
        # LAD outputs the slices of a layer at once; it does not wait until they are written.
        m.submodules.states = states = MemoryFifo(
            shape=layout, depth=max(2, p.lad.hidden_slices * p.lad.batch)
        )
        connect_streams(m, lad.states, states.source)
        m.submodules.state_writer = writer = WordWriter(
            address_bits=p.address_bits, longest=p.longest, shape=layout.size
        )
        m.d.comb += [
            writer.items.payload.eq(states.sink.payload.as_value()),
            writer.items.valid.eq(states.sink.valid),
            states.sink.ready.eq(writer.items.ready),
            writer.restart.eq(self.restart),
        ]
        self._connect_writes(m, writer.port, self.state_writes)
        return states.sink

    def _open_steps(self, m: Module, lad: Lad) -> Signal:
        """Return the number of ends of begun steps that have not been written."""
        # A step is in its tile from its append to its last change.
        most = ENDS * MOST_STEPS * self.parameters.lad.tiles
        left = Signal(range(most + 1))
        ends = [lad.centres.valid & lad.centres.ready]
        for port in (lad.marks, lad.columns):
            ends.append(port.valid & port.ready & port.payload.last)
        # A step begins with its append, of which no stream of the step is ahead.
        begins = lad.appends.valid & lad.appends.ready
        m.d.sync += left.eq(left + Mux(begins, ENDS, 0) - sum(ends[1:], start=ends[0]))
        return left

    def _pending(self, m: Module, tokens: LadTokens, states: stream.Interface) -> Signal:
        """Return the number of results of begun tokens that are not output."""
        p, lad = self.parameters, self.parameters.lad
        # A token begins when the one before it has no result left but its last states.
        pending = Signal(range(2 * (p.state_words + lad.batch) + 1))
        results: Any = p.state_words
        ends: Value = states.valid & states.ready
        if lad.vocabulary_size:
            results = results + Mux(tokens.tokens.payload.predicts, lad.batch, 0)
            ends = ends + (self.predictions.valid & self.predictions.ready)
        m.d.sync += pending.eq(pending + Mux(tokens.begins, results, 0) - ends)
        return pending
