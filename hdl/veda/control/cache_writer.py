"""Writes of a block's keys and values into VEDA's cache; the queries that follow them."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.instructions import Operation, Space
from hdl.veda.parameters import VedaParameters


class CacheWriter(Unit):
    """Write the keys and values of a block of tokens, and give each of its queries a place.

    Keys, then values, then queries arrive at one port: each beat (one head per lane) for all tokens
    of the block. A token is offered once for each of its beats of keys and values. The queries
    follow without tokens, while other parts process the block.

    **Latency** 0 cycles. **Throughput** one beat per cycle.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    tokens : In(stream)
        The token of the next beat of keys or values: the block's tokens in order, again and again
        until `ends`.
    ends : Out(1)
        The beat of this token is the last one of the block's values.
    vectors, projections, writes, queries
        As in `Scheduler`. The task's operation selects between `vectors` and `projections`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "tokens": In(stream.Signature(p.cached_token_layout)),
                "ends": Out(1),
                "vectors": In(stream.Signature(p.beat_layout)),
                "projections": In(stream.Signature(p.beat_layout)),
                "writes": Out(stream.Signature(p.write_layout)),
                "queries": Out(stream.Signature(p.query_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Route keys and values to the writes, and the queries that follow them to `queries`."""
        m = Module()
        p, tokens = self.parameters, self.tokens
        whole = tokens.payload.task.operation == Operation.LAYER
        # Queries have yet to arrive. The block may be replaced meanwhile: a record holds what the
        # queries need of it.
        pending = Signal()
        block = Signal(data.StructLayout({"whole": 1, "last_token": p.token_shape}))
        projected, offered, written, queries_end = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            # The instruction selects the source, not the `valid` of the sources.
            projected.eq(Mux(pending, block.whole, whole)),
            offered.eq(Mux(projected, self.projections.valid, self.vectors.valid)),
            self.queries.valid.eq(offered & pending),
            self.queries.payload.item.eq(self.writes.payload.words),
            self.writes.valid.eq(tokens.valid & offered & ~pending),
            self.writes.payload.words.eq(
                Mux(projected, self.projections.payload.as_value(), self.vectors.payload.as_value())
            ),
            written.eq(self.writes.valid & self.writes.ready),
            tokens.ready.eq(written),
        ]
        for source, chosen in ((self.vectors, ~projected), (self.projections, projected)):
            m.d.comb += source.ready.eq(chosen & Mux(pending, self.queries.ready, written))
        self._address(m, written)
        self._place_query(m, block.last_token, queries_end)
        with m.If(queries_end):
            m.d.sync += pending.eq(0)
        with m.If(written & self.ends):
            m.d.sync += [
                pending.eq(1),
                block.whole.eq(whole),
                block.last_token.eq(tokens.payload.task.last_token),
            ]
        return m

    def _address(self, m: Module, written: Value) -> None:
        """Count the beats of keys, then of values, and address their lines."""
        p, token = self.parameters, self.tokens.payload
        head_round, value = Signal(range(p.kv_rounds)), Signal()
        round_ends = head_round == p.kv_rounds - 1
        m.d.comb += self.ends.eq(token.last & round_ends & value)
        with m.If(written & token.last):
            m.d.sync += [
                head_round.eq(Mux(round_ends, 0, head_round + 1)),
                value.eq(value ^ round_ends),
            ]
        for channel in range(p.channels):
            heads = [p.lane(number, channel) for number in range(p.kv_rounds)]
            address = self.writes.payload.addresses[channel]
            # The fields are concatenated: no address is computed by addition.
            line = data.View(p.cache_line, address.line[: p.cache_line.size])
            m.d.comb += [
                # A lane without a head in the last round writes nothing.
                self.writes.payload.enables[channel].eq(
                    Array(head < p.kv_heads for head in heads)[head_round]
                ),
                address.space.eq(Space.CACHE),
                address.layer.eq(token.task.layer),
                line.slot.eq(token.slot),
                line.part.eq(channel % p.vector_lines),
                line.value.eq(value),
                line.kv_head.eq(Array(head % p.kv_heads for head in heads)[head_round]),
            ]

    def _place_query(self, m: Module, last_token: Value, ends: Signal) -> None:
        """Assign each query its place: they arrive round by round, and are read token by token."""
        p, query = self.parameters, self.queries.payload
        # A place is token * rounds + head_round, incremented rather than multiplied.
        token, place = Signal(p.token_shape), Signal(query.place.shape())
        head_round = Signal(range(p.rounds))
        token_ends, round_ends = token == last_token, head_round == p.rounds - 1
        moves = self.queries.valid & self.queries.ready
        m.d.comb += [
            query.place.eq(place),
            query.last.eq(round_ends & token_ends),
            ends.eq(moves & query.last),
        ]
        with m.If(moves):
            m.d.sync += [token.eq(token + 1), place.eq(place + p.rounds)]
            with m.If(token_ends):
                later = Mux(round_ends, 0, head_round + 1)
                m.d.sync += [token.eq(0), head_round.eq(later), place.eq(later)]
