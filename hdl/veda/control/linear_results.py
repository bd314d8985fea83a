"""VEDA's rows of sums on their way: to the rotary embedding, the activation, or the next matrix."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.collector import Collector
from hdl.stream.connect import connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit
from hdl.veda.encodings import RowKind
from hdl.veda.parameters import VedaParameters


class LinearResults(Unit):
    """Pass each row on to where its kind belongs.

    Keys and queries come with the elements that rotate together as neighbours: they leave pair by
    pair for the rotary embedding, and come back as rows; values pass by, in their turn. Gates and
    ups are neighbours too: they leave for the activation, and come back as vectors for the next
    matrix. So are the heads' outputs, an array's row after the other.

    Of a block of tokens each row of a matrix comes for one token after the other, but the heads'
    outputs for one head after the other.

    **Latency** 0 cycles for values and outputs; for rows with pairs ``row + 2`` cycles and that of
    the function. **Throughput** an element a cycle of keys and queries, two of gates and ups.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    rows : In(stream)
        The arrays' rows, each kind in the order of the program: keys, values, queries.
    angles : In(stream)
        Those of a block's positions, before its rows. All heads are rotated alike.
    outputs : Out(stream)
        Heads' outputs that leave the accelerator.
    projections : Out(stream)
        Keys, values and queries, as in `Scheduler`.
    logits : Out(stream)
        With a vocabulary: a row of its sums is at the arrays' outputs, of a block of as many
        tokens.
    slices : Out(stream)
        Halves of vectors for the arrays, and where in a block's vectors they belong.
    pairs, rotated : Out, In(stream)
        To and from the rotary embedding.
    operands, activated : Out, In(stream)
        To and from the activation.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        activation, rotary = p.functions.activation, p.functions.rotary
        logits = {"logits": Out(stream.Signature(p.token_shape))} if p.vocabulary else {}
        super().__init__(
            {
                "rows": In(stream.Signature(p.row_layout)),
                "angles": In(stream.Signature(p.angles_layout)),
                "outputs": Out(stream.Signature(p.beat_layout)),
                "projections": Out(stream.Signature(p.beat_layout)),
                "slices": Out(stream.Signature(p.slice_layout)),
                "pairs": Out(stream.Signature(rotary.pair_layout)),
                "rotated": In(stream.Signature(rotary.rotated_layout)),
                "operands": Out(stream.Signature(activation.operands_layout)),
                "activated": In(stream.Signature(activation.element_layout)),
            }
            | logits
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the rows of each kind, and route."""
        m = Module()
        p = self.parameters
        pair = data.StructLayout({"x": BINARY16.layout, "y": BINARY16.layout})
        m.submodules.serialiser = serialiser = Serialiser(shape=pair, items=p.row // 2, tag_shape=1)
        rows, row, paired = self.rows, self.rows.payload, serialiser.groups
        index = Signal(range(max(p.projected_rows, p.gated_rows, p.rounds)))
        token = Signal(p.token_shape)
        ends, token_ends = Signal(), Signal()
        attends, gated = Signal(), Signal()
        rotated, rotating = self._rotate(m, serialiser.items, paired)
        split = self._slices(m, ends & token_ends)
        m.d.comb += [
            token_ends.eq(token == row.last_token),
            attends.eq(row.kind == RowKind.ATTENDED),
            gated.eq(row.kind == RowKind.GATED),
            Value.cast(paired.payload["items"]).eq(Value.cast(row.values)),
            # The tag goes with each pair: to the activation, else to the rotary embedding.
            paired.payload.tag.eq(gated),
            paired.payload.last.eq(ends & token_ends & gated),
            self.outputs.payload.eq(row.values),
            self.projections.valid.eq(rotated.valid),
            self.projections.payload.eq(Value.cast(rotated.payload["items"])),
            rotated.ready.eq(self.projections.ready),
        ]
        self._route(m, paired, index=index, ends=ends, rotating=rotating, split=split)
        # A matrix's rows come token by token each, a token's heads one behind the other.
        counted = (row.kind != RowKind.OUTPUT) & (row.kind != RowKind.LOGITS)
        moves = rows.valid & rows.ready & counted
        with m.If(moves & (attends | token_ends)):
            m.d.sync += index.eq(Mux(ends, 0, index + 1))
        with m.If(moves & (~attends | ends)):
            m.d.sync += token.eq(Mux(token_ends, 0, token + 1))
        return m

    def _route(
        self, m: Module, paired: Any, *, index: Value, ends: Signal, rotating: Value, split: Value
    ) -> None:
        """Lead a row to where its kind belongs; find whether it is its kind's last."""
        p, rows, row = self.parameters, self.rows, self.rows.payload
        is_value = Signal()
        with m.Switch(row.kind):
            with m.Case(RowKind.OUTPUT):
                m.d.comb += [
                    self.outputs.valid.eq(rows.valid),
                    rows.ready.eq(self.outputs.ready),
                ]
            if p.vocabulary:
                with m.Case(RowKind.LOGITS):
                    m.d.comb += [
                        self.logits.valid.eq(rows.valid),
                        self.logits.payload.eq(row.last_token),
                        rows.ready.eq(self.logits.ready),
                    ]
            with m.Case(RowKind.ATTENDED):
                m.d.comb += [rows.ready.eq(split), ends.eq(index == p.rounds - 1)]
            # Keys, values, queries: only the values in the middle keep their elements as they are.
            with m.Case(RowKind.PROJECTED):
                m.d.comb += [
                    ends.eq(index == p.projected_rows - 1),
                    is_value.eq((index >= p.kv_rounds) & (index < 2 * p.kv_rounds)),
                    paired.valid.eq(rows.valid & ~is_value),
                    rows.ready.eq(paired.ready),
                ]
                with m.If(is_value):
                    m.d.comb += rows.ready.eq(~rotating & self.projections.ready)
                # Values follow the keys, which are still being rotated.
                with m.If(is_value & ~rotating):
                    m.d.comb += [
                        self.projections.valid.eq(rows.valid),
                        self.projections.payload.eq(row.values),
                    ]
            with m.Case(RowKind.GATED):
                m.d.comb += [
                    ends.eq(index == p.gated_rows - 1),
                    paired.valid.eq(rows.valid),
                    rows.ready.eq(paired.ready),
                ]

    def _rotate(self, m: Module, pairs: Any, rows: Any) -> tuple[Any, Value]:
        """Give each pair its angle or its function; return the rows that come back, if any."""
        p = self.parameters
        # Pairs come every other cycle at most: the cycle between two rows costs nothing, and the
        # shared operators' ready ends here.
        m.submodules.rotated_rows = collected = Collector(shape=32, items=p.row // 2, overlap=False)
        tagged, pair = pairs.payload, pairs.payload.item
        angles = Signal(p.angle_layout, reset_less=True)
        returned = self.rotated.payload
        known = self._angles(m, angles)
        m.d.comb += [
            self.pairs.valid.eq(pairs.valid & ~tagged.tag & known),
            self.pairs.payload.x.eq(pair.x),
            self.pairs.payload.y.eq(pair.y),
            self.pairs.payload.cosine.eq(angles[0].cosine),
            self.pairs.payload.sine.eq(angles[0].sine),
            self.operands.valid.eq(pairs.valid & tagged.tag),
            self.operands.payload.gate.eq(pair.x),
            self.operands.payload.up.eq(pair.y),
            self.operands.payload.last.eq(tagged.last),
            pairs.ready.eq(Mux(tagged.tag, self.operands.ready, self.pairs.ready & known)),
            collected.items.valid.eq(self.rotated.valid),
            collected.items.payload.item.eq(Cat(returned.x, returned.y)),
            self.rotated.ready.eq(collected.items.ready),
        ]
        # Rows in the serialiser, in the rotary embedding, and collected: none may be overtaken.
        under_way = Signal(range(4))
        enters = rows.valid & rows.ready & ~rows.payload.tag
        leaves = collected.groups.valid & collected.groups.ready
        m.d.sync += under_way.eq(under_way + enters - leaves)
        return collected.groups, under_way != 0

    def _angles(self, m: Module, angles: Any) -> Value:
        """Give each row its token's angles, which go round in it; return whether they are there."""
        p = self.parameters
        m.submodules.sets = sets = ReplayBuffer(
            shape=p.angle_layout, depth=max(2, p.block), follows=False
        )
        connect_streams(m, self.angles, sets.source)
        rotated_rows = p.projected_rows - p.kv_rounds
        place, known = Signal(range(p.row // 2)), Signal()
        number, tokens, token = (
            Signal(range(rotated_rows)),
            Signal(range(p.block + 1)),
            Signal(p.token_shape),
        )
        rotates = self.pairs.valid & self.pairs.ready
        ends, final, loads = Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq(rotates & (place == p.row // 2 - 1)),
            final.eq(token + 1 == tokens),
            sets.sink.ready.eq(ends | ~known),
            sets.release.eq(final & (number == rotated_rows - 1)),
            loads.eq(sets.sink.valid & sets.sink.ready),
        ]
        with m.If(rotates):
            # A row has whole heads: the angles, turned round pair by pair, stand as before when
            # the next head begins.
            m.d.sync += [
                Value.cast(angles).eq(Value.cast(angles).rotate_right(32)),
                place.eq(Mux(ends, 0, place + 1)),
            ]
        # The next row's angles, the next token's, are read while this row's last pair leaves.
        with m.If(loads | ends):
            m.d.sync += [angles.eq(sets.sink.payload), known.eq(loads)]
        with m.If(loads):
            m.d.sync += token.eq(Mux(final, 0, token + 1))
            with m.If(final):
                m.d.sync += number.eq(Mux(sets.release, 0, number + 1))
        with m.If(self.angles.valid & self.angles.ready):
            m.d.sync += tokens.eq(tokens + 1)
        with m.Elif(loads & sets.release):
            m.d.sync += tokens.eq(0)
        return known

    def _slices(self, m: Module, ends: Value) -> Value:
        """Collect activated elements, split the heads' outputs; return whether the row is split."""
        p = self.parameters
        m.submodules.activated = activated = Collector(
            shape=16, items=p.array.width // 2, overlap=False
        )
        m.d.comb += [
            activated.items.valid.eq(self.activated.valid),
            activated.items.payload.item.eq(self.activated.payload.value),
            activated.items.payload.last.eq(self.activated.payload.last),
            self.activated.ready.eq(activated.items.ready),
        ]
        slices, row = self.slices, self.rows.payload
        # The rows are gone when their elements come back from the activation.
        last_token = Signal(p.token_shape)
        with m.If(self.rows.valid & (row.kind == RowKind.GATED)):
            m.d.sync += last_token.eq(row.last_token)
        # Where the next half belongs.
        place, part = Signal(slices.payload.place.shape()), Signal(range(2 * p.copies))
        final = part == 2 * p.copies - 1
        attended = self.rows.valid & (row.kind == RowKind.ATTENDED)
        moves = slices.valid & slices.ready
        m.d.comb += [
            slices.valid.eq(activated.groups.valid | attended),
            slices.payload.place.eq(place),
            activated.groups.ready.eq(slices.ready),
        ]
        # The heads' outputs come when all activated elements are used.
        with m.If(attended):
            halves = data.ArrayLayout(p.array.vector_layout.size // 2, 2 * p.copies)
            m.d.comb += [
                slices.payload.item.eq(data.View(halves, Value.cast(row.values))[part]),
                slices.payload.last.eq(ends & final),
            ]
            with m.If(moves):
                m.d.sync += [part.eq(Mux(final, 0, part + 1)), place.eq(place + 1)]
        with m.Else():
            m.d.comb += [
                slices.payload.item.eq(Value.cast(activated.groups.payload["items"])),
                slices.payload.last.eq(activated.groups.payload.last),
            ]
            first = self._place_activated(m, place, last_token, moves)
        with m.If(moves & slices.payload.last):
            m.d.sync += [place.eq(0), first.eq(0)]
        return slices.ready & final

    def _place_activated(self, m: Module, place: Signal, last_token: Value, moves: Value) -> Signal:
        """Place the halves of activated vectors, which come a row of each token at a time.

        A token's vectors stand one behind the other, so the next token's half is a whole token's
        vectors further on; behind the block's last token it is the first token's next row. Returns
        where the first token's row begins.
        """
        p = self.parameters
        copy, first = Signal(range(p.copies)), Signal(range(2 * p.activated_slices))
        token = Signal(p.token_shape)
        with m.If(moves):
            m.d.sync += [copy.eq(copy + 1), place.eq(place + 1)]
            with m.If(copy == p.copies - 1):
                m.d.sync += [
                    copy.eq(0),
                    token.eq(token + 1),
                    place.eq(place + 2 * p.activated_slices - (p.copies - 1)),
                ]
                with m.If(token == last_token):
                    later = first + p.copies
                    m.d.sync += [token.eq(0), first.eq(later), place.eq(later)]
        return first
