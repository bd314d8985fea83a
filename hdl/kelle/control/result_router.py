"""Routes results to their consumers; queries and keys pass through the rotary embedding.

Section 5 of the paper: the array outputs partial sums to the accumulators and the special function
units.
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.control.slice_pieces import collect_pieces, count_pieces, piece_of
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.nonlinear.rotary_embedding import RotaryEmbedding
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

KEPT_FIELDS = ("operation", "head", "index", "ends")
"""Fields of a header that the rotated slices of its head need."""

REGISTERS = 64
"""Maximum depth of the queue of headers in registers; a deeper queue is in a memory."""


@dataclass(frozen=True)
class Rotated:
    """A slice from the rotary embedding, and the header of its result."""

    valid: Value
    last: Value
    header: data.View
    part: Value
    slice: data.View


class ResultRouter(Unit):
    """Write each aligned result to the memory from which a later operation reads it.

    The array computes the first slices of all members of the combined matrix before their second
    slices, but the rotary embedding takes whole heads. Queries and keys are therefore stored until
    their last slice is valid.

    There is no handshake. Keys and values have separate outputs, because the first values of a head
    may be valid while its last keys are still being rotated. The slices of a head are read from the
    memory before those of the next head overwrite them: the array takes at least as many cycles for
    that as two heads of all members have slices.

    A slice passes the rotary embedding in `rotary_pieces` pieces, one per cycle; the rotated pieces
    are held until the slice is complete.

    Without `rotary`, queries and keys are routed directly, like all other results.

    **Latency** 0 cycles; for rotated heads, 3 cycles and the latency of the rotary embedding from a
    head's last slice to its first rotated slice, and one cycle for each further piece of it.
    **Throughput** one result per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    results : In
        `values`, `user` (a header), `valid`: aligned results of the array.
    members, last_token : In
        Rows of the combined matrix, and index of the last arriving token, as in `StepControl`.
    queries, scores, contexts, ups, gates : Out
        Writes of slices.
    sums : Out
        Writes of slices of a block's output; the output `leaves` is 1 for those of the feed-forward
        block.
    computed_keys, computed_values : Out
        A slice of a key, and a slice of a value; both may be valid in the same cycle.
    ended : Out
        One bit per operation, 1 in the cycle in which its last result is written.
    of_last_token : Out
        The current result belongs to the last token.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "results": In(p.array.result_layout),
                "members": In(data.ArrayLayout(p.member_layout, p.members)),
                "last_token": In(p.token_shape),
                "queries": Out(p.slice_write(p.step_tokens * p.heads * p.head_slices)),
                "scores": Out(p.slice_write(p.step_tokens * p.heads * (p.cache_tiles + 1))),
                "contexts": Out(p.slice_write(p.step_tokens * p.hidden_slices)),
                "ups": Out(p.slice_write(p.step_tokens * p.intermediate_slices)),
                "gates": Out(p.slice_write(p.step_tokens * p.intermediate_slices)),
                "sums": Out(p.slice_write(p.step_tokens * p.hidden_slices)),
                "leaves": Out(1),
                "computed_keys": Out(p.computed_layout),
                "computed_values": Out(p.computed_layout),
                "ended": Out(len(Operation)),
                "of_last_token": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the destination of a result by its operation."""
        m = Module()
        p = self.parameters
        # The header passed through array and output stage with the vector.
        header = data.View(p.header_layout, self.results.user)
        valid = {which: self.results.valid & (header.operation == which) for which in Operation}
        # With scores, `index` is the query head within the group of its key/value head.
        query = p.token_head(header.token, header.head) * p.group_size + header.index
        # With the other operations, `index` is the token. The addresses of a token's slices are
        # consecutive, except those of up and gate, which have the order of computation. All of
        # these results are written in the cycle in which they are valid.
        slice_ = header.head * p.head_slices + header.part
        place = p.token_item(header.index, p.hidden_slices, slice_)
        gated = p.item_of_tokens(slice_, header.index)
        direct = (
            (
                self.scores,
                valid[Operation.SCORE] | valid[Operation.OWN],
                query * (p.cache_tiles + 1) + header.part,
            ),
            (
                self.contexts,
                valid[Operation.ATTEND],
                p.token_head(header.token, header.head) * (p.group_size * p.head_slices)
                + header.index,
            ),
            (self.ups, valid[Operation.UP], gated),
            (self.gates, valid[Operation.GATE], gated),
            (self.sums, valid[Operation.OUTPUT] | valid[Operation.DOWN], place),
        )
        for port, strobe, address in direct:
            m.d.comb += [
                port.strobe.eq(strobe),
                port.address.eq(address),
                port["values"].eq(self.results["values"]),
            ]
        m.d.comb += [
            self.leaves.eq(valid[Operation.DOWN]),
            self.of_last_token.eq(header.token == self.last_token),
        ]
        for which in Operation:
            if which not in (Operation.QUERY, Operation.KEY):
                m.d.comb += self.ended[which.value].eq(valid[which] & header.ends)
        if p.rotary:
            rotated = self._rotate(m, header, valid[Operation.QUERY] | valid[Operation.KEY])
        else:
            rotated = self._as_they_are(header)
        self._send_rotated(m, rotated)

        self._send_computed(m, header, valid[Operation.VALUE], rotated)
        return m

    def _as_they_are(self, header: data.View) -> Rotated:
        """Return results without rotation, in place of the rotary embedding's output."""
        p = self.parameters
        return Rotated(
            valid=self.results.valid,
            last=header.part == p.head_slices - 1,
            header=header,
            part=header.part,
            slice=self.results["values"],
        )

    def _rotate(self, m: Module, header: data.View, valid: Value) -> Rotated:
        """Collect heads, rotate them, and return the rotated slices with their headers."""
        p = self.parameters
        layout = data.StructLayout({name: p.header_layout.members[name] for name in KEPT_FIELDS})
        m.submodules.straight = straight = Memory(
            depth=max(p.members * p.head_slices, 2), width=p.slice_layout.size
        )
        queue = Fifo if p.members <= REGISTERS else MemoryFifo
        m.submodules.pending = pending = queue(shape=layout, depth=p.members)
        # Room for a head in each stage, in the register before the stages, and for the next head.
        m.submodules.rotating = rotating = Fifo(shape=layout, depth=p.embedding.stages + 2)
        m.submodules.rotary = rotary = RotaryEmbedding(parameters=p.embedding)

        # A head is complete with its last slice, which is in the memory one cycle later.
        whole, whole_header = Signal(), Signal(layout, reset_less=True)
        m.d.sync += [
            whole.eq(valid & (header.part[: bits_for(p.head_slices - 1)] == p.head_slices - 1)),
            *(whole_header[name].eq(header[name]) for name in KEPT_FIELDS),
        ]
        first = pending.sink.payload
        part, fed, fed_last = (
            Signal(range(max(p.head_slices, 2))),
            Signal(),
            Signal(reset_less=True),
        )
        last, moves = part == p.head_slices - 1, pending.sink.valid
        piece, ends_slice = count_pieces(m, moves, p.rotary_pieces)
        last, moves = last & ends_slice, moves & ends_slice
        position = Signal(p.position_bits, reset_less=True)
        m.d.comb += [
            straight.write_enable.eq(valid),
            straight.write_address.eq(header.index * p.head_slices + header.part),
            straight.write_data.eq(self.results["values"]),
            straight.read_enable.eq(1),
            straight.read_address.eq(first.index * p.head_slices + part),
            pending.source.valid.eq(whole),
            pending.source.payload.eq(whole_header),
            pending.sink.ready.eq(last),
            rotating.source.valid.eq(pending.sink.valid & last),
            rotating.source.payload.eq(first),
            rotary.vectors.valid.eq(fed),
            rotary.vectors.payload["values"].eq(
                piece_of(m, straight.read_data, piece, p.rotary_pieces)
            ),
            rotary.vectors.payload.position.eq(position),
            rotary.vectors.payload.last.eq(fed_last),
            rotary.rotated.ready.eq(1),
            rotating.sink.ready.eq(rotary.rotated.valid & rotary.rotated.payload.last),
        ]
        with m.If(moves):
            m.d.sync += part.eq(Mux(last, 0, part + 1))
        # The memory outputs a slice one cycle after its address; its controls have the same delay.
        m.d.sync += [
            fed.eq(pending.sink.valid),
            fed_last.eq(last),
            position.eq(Array(self.members[i] for i in range(p.members))[first.index].position),
        ]
        # The embedding keeps the order: the oldest header belongs to the slices it outputs.
        rotated = rotary.rotated
        rotated_part = Signal(range(max(p.head_slices, 2)))
        values = rotated.payload["values"].as_value()
        complete, slice_ = collect_pieces(m, rotated.valid, values, p.slice_layout, p.rotary_pieces)
        with m.If(complete):
            m.d.sync += rotated_part.eq(Mux(rotated.payload.last, 0, rotated_part + 1))
        return Rotated(
            valid=complete,
            last=rotated.payload.last,
            header=rotating.sink.payload,
            part=rotated_part,
            slice=slice_,
        )

    def _send_computed(
        self, m: Module, header: data.View, is_value: Value, rotated: Rotated
    ) -> None:
        """Send computed keys and values to the KV fetch, with the index of the token's vector."""
        p = self.parameters
        # Values are sent without rotation, keys rotated; each has a memory of its own.
        members = Array(self.members[i] for i in range(p.members))
        rotated_key = rotated.valid & (rotated.header.operation == Operation.KEY)
        for port, strobe, whose, part, values in (
            (self.computed_keys, rotated_key, rotated.header, rotated.part, rotated.slice),
            (
                self.computed_values,
                is_value,
                header,
                header.part,
                self.results["values"],
            ),
        ):
            m.d.comb += [
                port.strobe.eq(strobe),
                port.vector.eq(members[whose.index].vector),
                port.head.eq(whose.head),
                port.part.eq(part),
                port["values"].eq(values),
            ]

    def _send_rotated(self, m: Module, rotated: Rotated) -> None:
        """Write queries, and report complete query heads and keys."""
        p, header = self.parameters, rotated.header
        is_query, is_key = (header.operation == which for which in (Operation.QUERY, Operation.KEY))
        ends = rotated.valid & rotated.last & header.ends
        m.d.comb += [
            self.queries.strobe.eq(rotated.valid & is_query),
            self.queries.address.eq(
                p.token_item(header.index, p.heads, header.head) * p.head_slices + rotated.part
            ),
            self.queries["values"].eq(rotated.slice),
            self.ended[Operation.QUERY.value].eq(ends & is_query),
            self.ended[Operation.KEY.value].eq(ends & is_key),
        ]
