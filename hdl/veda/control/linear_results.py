"""Routes of VEDA's rows of results: rotary embedding, activation, scheduler, or next matrix."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.collector import Collector
from hdl.stream.connect import connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit
from hdl.veda.instructions import RowKind
from hdl.veda.parameters import VedaParameters


@dataclass(frozen=True, kw_only=True)
class _Paired:
    """Rows whose elements are processed in pairs.

    Parameters
    ----------
    rows : stream.Interface
        The input of such rows.
    rotating : Value
        A row has been sent to the rotary embedding, and has not returned.
    """

    rows: stream.Interface
    rotating: Value


@dataclass(frozen=True, kw_only=True)
class _Activated:
    """Half a vector of activated elements.

    Parameters
    ----------
    valid, item : Value
        The half, and whether there is one.
    last : Value
        It is the block's last.
    last_token : Value
        Last token of its block.
    """

    valid: Value
    item: Value
    last: Value
    last_token: Value


class LinearResults(Unit):
    """Route each row of results by its kind.

    Rows of keys and queries store the two elements of a rotary pair next to each other. They are
    sent to the rotary embedding one pair per transfer and collected into rows again; rows of values
    bypass it, in order. Rows of the SwiGLU's `gate_proj` and `up_proj` are interleaved likewise:
    their pairs are sent to the activation, and its results are collected into vectors for the down
    projection. The heads' outputs become vectors for the output projection, one array's row after
    the other. Without a gate the rows of `up_proj` become vectors in the same way, after a ReLU;
    without rotary embedding keys and queries are treated like values.

    For a block of tokens, each row of a matrix arrives for one token after the other; the heads'
    outputs of one token arrive before those of the next.

    **Latency** 0 cycles for values and outputs; for rows with pairs ``row + 2`` cycles plus the
    latency of the function. **Throughput** one element per cycle of keys and queries, two of
    `gate_proj` and `up_proj`.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    rows : In(stream)
        Rows of results of the arrays; those of a projection in the order keys, values, queries.
    angles : In(stream)
        With rotary embedding: the angles of the positions of a block, before its rows. All heads
        use the same angles.
    outputs : Out(stream)
        Heads' outputs that are output of the accelerator (attention alone).
    projections : Out(stream)
        Rows of keys, values and queries, as in `Scheduler`.
    logits : Out(stream)
        With an LM head: a row of logits is at the arrays' outputs. The payload is the last token of
        its block.
    slices : Out(stream)
        Half vectors for the arrays, with their place among the block's vectors.
    pairs, rotated : Out, In(stream)
        To and from the rotary embedding, if there is one.
    operands, activated : Out, In(stream)
        To and from the activation, if there is a gate.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        activation, rotary = p.functions.activation, p.functions.rotary
        logits = {"logits": Out(stream.Signature(p.token_shape))} if p.vocabulary_size else {}
        rotates = {
            "pairs": Out(stream.Signature(rotary.pair_layout)),
            "rotated": In(stream.Signature(rotary.rotated_layout)),
        }
        activates = {
            "operands": Out(stream.Signature(activation.operands_layout)),
            "activated": In(stream.Signature(activation.element_layout)),
        }
        super().__init__(
            {
                "rows": In(stream.Signature(p.row_layout)),
                **({"angles": In(stream.Signature(p.angles_layout))} if p.rotary else {}),
                "outputs": Out(stream.Signature(p.beat_layout)),
                "projections": Out(stream.Signature(p.beat_layout)),
                "slices": Out(stream.Signature(p.slice_layout)),
                **(rotates if p.rotary else {}),
                **(activates if p.gated else {}),
            }
            | logits
        )

    def elaborate(self, platform: object) -> Module:
        """Count the rows of each kind, and route them."""
        m = Module()
        p = self.parameters
        rows, row = self.rows, self.rows.payload
        index = Signal(range(max(p.projected_rows, p.gated_rows, p.rounds)))
        token = Signal(p.token_shape)
        ends, token_ends, attends = Signal(), Signal(), Signal()
        paired = self._pairs(m, ends & token_ends) if p.rotary or p.gated else None
        split = self._slices(m, ends & token_ends)
        m.d.comb += [
            token_ends.eq(token == row.last_token),
            ends.eq(index == self._last_row(m)),
            attends.eq(row.kind == RowKind.ATTENDED),
            self.outputs.payload.eq(row.values),
        ]
        self._route(m, paired, index=index, split=split)
        # A matrix's rows arrive token by token for each row; the heads' outputs, head by head for
        # each token.
        counted = (row.kind != RowKind.OUTPUT) & (row.kind != RowKind.LOGITS)
        moves = rows.valid & rows.ready & counted
        with m.If(moves & (attends | token_ends)):
            m.d.sync += index.eq(Mux(ends, 0, index + 1))
        with m.If(moves & (~attends | ends)):
            m.d.sync += token.eq(Mux(token_ends, 0, token + 1))
        return m

    def _last_row(self, m: Module) -> Signal:
        """Return the index of the last row of the present row's kind."""
        p = self.parameters
        last = Signal(range(max(p.projected_rows, p.gated_rows, p.rounds)))
        with m.Switch(self.rows.payload.kind):
            with m.Case(RowKind.ATTENDED):
                m.d.comb += last.eq(p.rounds - 1)
            with m.Case(RowKind.PROJECTED):
                m.d.comb += last.eq(p.projected_rows - 1)
            with m.Case(RowKind.GATED):
                m.d.comb += last.eq(p.gated_rows - 1)
        return last

    def _route(self, m: Module, paired: _Paired | None, *, index: Value, split: Value) -> None:
        """Route a row by its kind."""
        p, rows, row = self.parameters, self.rows, self.rows.payload
        with m.Switch(row.kind):
            with m.Case(RowKind.OUTPUT):
                m.d.comb += [
                    self.outputs.valid.eq(rows.valid),
                    rows.ready.eq(self.outputs.ready),
                ]
            if p.vocabulary_size:
                with m.Case(RowKind.LOGITS):
                    m.d.comb += [
                        self.logits.valid.eq(rows.valid),
                        self.logits.payload.eq(row.last_token),
                        rows.ready.eq(self.logits.ready),
                    ]
            with m.Case(RowKind.ATTENDED):
                m.d.comb += rows.ready.eq(split)
            with m.Case(RowKind.PROJECTED):
                if p.rotary and paired is not None:
                    self._route_rotated(m, paired, index)
                else:
                    m.d.comb += [
                        self.projections.valid.eq(rows.valid),
                        self.projections.payload.eq(row.values),
                        rows.ready.eq(self.projections.ready),
                    ]
            with m.Case(RowKind.GATED):
                if p.gated and paired is not None:
                    m.d.comb += [
                        paired.rows.valid.eq(rows.valid),
                        rows.ready.eq(paired.rows.ready),
                    ]
                else:
                    m.d.comb += rows.ready.eq(split)

    def _route_rotated(self, m: Module, paired: _Paired, index: Value) -> None:
        """Route a projected row: only rows of values are not rotated."""
        p, rows, rotating = self.parameters, self.rows, paired.rotating
        # Rows are keys, values, queries in this order.
        is_value = Signal()
        m.d.comb += [
            is_value.eq((index >= p.kv_rounds) & (index < 2 * p.kv_rounds)),
            paired.rows.valid.eq(rows.valid & ~is_value),
            rows.ready.eq(paired.rows.ready),
        ]
        with m.If(is_value):
            m.d.comb += rows.ready.eq(~rotating & self.projections.ready)
        # Values follow the keys, and must not overtake keys that are still being rotated.
        with m.If(is_value & ~rotating):
            m.d.comb += [
                self.projections.valid.eq(rows.valid),
                self.projections.payload.eq(rows.payload.values),
            ]

    def _pairs(self, m: Module, final: Value) -> _Paired:
        """Serialise rows of pairs, and send each pair to its function."""
        p, row = self.parameters, self.rows.payload
        pair = data.StructLayout({"x": BINARY16.layout, "y": BINARY16.layout})
        m.submodules.serialiser = serialiser = Serialiser(
            shape=pair, items=p.row_elements // 2, tag_shape=1
        )
        rows, pairs, gated = serialiser.groups, serialiser.items, Signal()
        rotates, activates, rotating = Const(0), Const(0), Const(0)
        m.d.comb += [
            gated.eq(row.kind == RowKind.GATED),
            Value.cast(rows.payload["items"]).eq(Value.cast(row.values)),
            # The tag accompanies each pair: 1 selects the activation, 0 the rotary embedding.
            rows.payload.tag.eq(gated),
            rows.payload.last.eq(final & gated),
        ]
        if p.rotary:
            rotates, rotating = self._rotate(m, pairs, rows)
        if p.gated:
            activates = self.operands.ready
            m.d.comb += [
                self.operands.valid.eq(pairs.valid & pairs.payload.tag),
                self.operands.payload.gate.eq(pairs.payload.item.x),
                self.operands.payload.up.eq(pairs.payload.item.y),
                self.operands.payload.last.eq(pairs.payload.last),
            ]
        m.d.comb += pairs.ready.eq(Mux(pairs.payload.tag, activates, rotates))
        return _Paired(rows=rows, rotating=rotating)

    def _rotate(
        self, m: Module, pairs: stream.Interface, rows: stream.Interface
    ) -> tuple[Value, Value]:
        """Rotate pairs, and collect them into rows of projections.

        Returns
        -------
        tuple[Value, Value]
            A pair is accepted; a row has been sent, and has not returned.
        """
        p = self.parameters
        # Pairs arrive at most every other cycle, so a collector without overlap loses no
        # throughput. It also cuts the path of `ready` of the shared operators.
        m.submodules.rotated_rows = collected = Collector(
            shape=32, items=p.row_elements // 2, overlap=False
        )
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
            collected.items.valid.eq(self.rotated.valid),
            collected.items.payload.item.eq(Cat(returned.x, returned.y)),
            self.rotated.ready.eq(collected.items.ready),
            self.projections.valid.eq(collected.groups.valid),
            self.projections.payload.eq(Value.cast(collected.groups.payload["items"])),
            collected.groups.ready.eq(self.projections.ready),
        ]
        # Rows in the serialiser, in the rotary embedding and in the collector: values must not
        # overtake.
        in_flight = Signal(range(4))
        enters = rows.valid & rows.ready & ~rows.payload.tag
        leaves = collected.groups.valid & collected.groups.ready
        m.d.sync += in_flight.eq(in_flight + enters - leaves)
        return self.pairs.ready & known, in_flight != 0

    def _angles(self, m: Module, angles: data.View) -> Value:
        """Select each row's angles and rotate them pair by pair; return whether they are valid."""
        p = self.parameters
        m.submodules.sets = sets = ReplayBuffer(
            shape=p.angle_layout, depth=max(2, p.block), follows=False
        )
        connect_streams(m, self.angles, sets.source)
        rotated_rows = p.projected_rows - p.kv_rounds
        place, known = Signal(range(p.row_elements // 2)), Signal()
        number, tokens, token = (
            Signal(range(rotated_rows)),
            Signal(range(p.block + 1)),
            Signal(p.token_shape),
        )
        rotates = self.pairs.valid & self.pairs.ready
        ends, final, loads = Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq(rotates & (place == p.row_elements // 2 - 1)),
            final.eq(token + 1 == tokens),
            sets.sink.ready.eq(ends | ~known),
            sets.release.eq(final & (number == rotated_rows - 1)),
            loads.eq(sets.sink.valid & sets.sink.ready),
        ]
        with m.If(rotates):
            # A row has an integer number of heads: when the next head begins, the angles have been
            # rotated back to their initial order.
            m.d.sync += [
                Value.cast(angles).eq(Value.cast(angles).rotate_right(32)),
                place.eq(Mux(ends, 0, place + 1)),
            ]
        # The next row's angles, of the next token, are read while the last pair of this row is
        # sent.
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
        """Form halves of vectors of heads' outputs and of activated elements.

        Returns whether the row is consumed, if it is split into halves here.
        """
        p = self.parameters
        slices, row = self.slices, self.rows.payload
        # Place of the next half vector.
        place, part = Signal(slices.payload.place.shape()), Signal(range(2 * p.copies))
        final = part == 2 * p.copies - 1
        attended = self.rows.valid & (row.kind == RowKind.ATTENDED)
        moves = slices.valid & slices.ready
        halves = data.ArrayLayout(p.array.vector_layout.size // 2, 2 * p.copies)
        half = data.View(halves, Value.cast(row.values))[part]
        activated = self._collected(m) if p.gated else self._rectified(half, ends & final)
        m.d.comb += [
            slices.valid.eq(activated.valid | attended),
            slices.payload.place.eq(place),
        ]
        # The heads' outputs arrive only after all activated elements have been used.
        with m.If(attended):
            m.d.comb += [slices.payload.item.eq(half), slices.payload.last.eq(ends & final)]
            with m.If(moves):
                m.d.sync += [part.eq(Mux(final, 0, part + 1)), place.eq(place + 1)]
        with m.Else():
            m.d.comb += [
                slices.payload.item.eq(activated.item),
                slices.payload.last.eq(activated.last),
            ]
            first = self._place_activated(m, place, activated.last_token, moves)
            if not p.gated:
                with m.If(moves):
                    m.d.sync += part.eq(Mux(final, 0, part + 1))
        with m.If(moves & slices.payload.last):
            m.d.sync += [place.eq(0), first.eq(0)]
        return slices.ready & final

    def _collected(self, m: Module) -> _Activated:
        """Collect the results of the activation into halves of vectors."""
        p, row = self.parameters, self.rows.payload
        m.submodules.activated = activated = Collector(
            shape=16, items=p.array.width // 2, overlap=False
        )
        m.d.comb += [
            activated.items.valid.eq(self.activated.valid),
            activated.items.payload.item.eq(self.activated.payload.value),
            activated.items.payload.last.eq(self.activated.payload.last),
            self.activated.ready.eq(activated.items.ready),
            activated.groups.ready.eq(self.slices.ready),
        ]
        # The row is no longer at the input when its elements return from the activation.
        last_token = Signal(p.token_shape)
        with m.If(self.rows.valid & (row.kind == RowKind.GATED)):
            m.d.sync += last_token.eq(row.last_token)
        return _Activated(
            valid=activated.groups.valid,
            item=Value.cast(activated.groups.payload["items"]),
            last=activated.groups.payload.last,
            last_token=last_token,
        )

    def _rectified(self, half: Value, last: Value) -> _Activated:
        """Return half of the row at the input after a ReLU: a code with a sign becomes zero."""
        row = self.rows.payload
        codes = [half.word_select(number, 16) for number in range(len(half) // 16)]
        return _Activated(
            valid=self.rows.valid & (row.kind == RowKind.GATED),
            item=Cat(code & ~code[-1].replicate(16) for code in codes),
            last=last,
            last_token=row.last_token,
        )

    def _place_activated(self, m: Module, place: Signal, last_token: Value, moves: Value) -> Signal:
        """Compute the place of halves of activated vectors, which arrive row by row, by token.

        A token's vectors are stored contiguously. The next token's half is therefore one token's
        vectors further on; after the block's last token, the first token's next row follows.
        Returns the place of the first token's row.
        """
        p = self.parameters
        # A row has one activated element for each pair, or for each element.
        halves = p.copies if p.gated else 2 * p.copies
        half, first = Signal(range(halves)), Signal(range(2 * p.activated_slices))
        token = Signal(p.token_shape)
        with m.If(moves):
            m.d.sync += [half.eq(half + 1), place.eq(place + 1)]
            with m.If(half == halves - 1):
                m.d.sync += [
                    half.eq(0),
                    token.eq(token + 1),
                    place.eq(place + 2 * p.activated_slices - (halves - 1)),
                ]
                with m.If(token == last_token):
                    later = first + halves
                    m.d.sync += [token.eq(0), first.eq(later), place.eq(later)]
        return first
