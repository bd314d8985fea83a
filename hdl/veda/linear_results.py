"""VEDA's rows of sums on their way: to the rotary embedding, the activation, or the next matrix."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.pair_serialiser import PairSerialiser
from hdl.veda.row_collector import RowCollector
from hdl.veda.special_functions import ACTIVATION, ROTARY
from hdl.veda.veda_kinds import RowKind
from hdl.veda.veda_parameters import VedaParameters


class LinearResults(Unit):
    """Pass each row on to where its kind belongs.

    Keys and queries come with the elements that turn together as neighbours: they leave pair by
    pair for the rotary embedding, and come back as rows; values pass by, in their turn. Gates and
    ups are neighbours too: they leave for the activation, and come back as vectors for the next
    matrix. So are the heads' outputs, an array's row after the other.

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
        Those of a token's position, before its rows. All heads are turned alike.
    outputs : Out(stream)
        Heads' outputs that leave the accelerator.
    projections : Out(stream)
        Keys, values and queries, as in `Scheduler`.
    slices : Out(stream)
        Vectors for the arrays, and `last` with the last for a matrix.
    pairs, rotated : Out, In(stream)
        To and from the rotary embedding.
    operands, activated : Out, In(stream)
        To and from the activation.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "rows": In(stream.Signature(p.row_layout)),
                "angles": In(stream.Signature(p.angle_layout)),
                "outputs": Out(stream.Signature(p.beat_layout)),
                "projections": Out(stream.Signature(p.beat_layout)),
                "slices": Out(stream.Signature(p.slice_layout)),
                "pairs": Out(stream.Signature(ROTARY.pair_layout)),
                "rotated": In(stream.Signature(ROTARY.rotated_layout)),
                "operands": Out(stream.Signature(ACTIVATION.operands_layout)),
                "activated": In(stream.Signature(ACTIVATION.element_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the rows of each kind, and route."""
        m = Module()
        p = self.parameters
        m.submodules.serialiser = serialiser = PairSerialiser(pairs=p.row // 2)
        rows, row, paired = self.rows, self.rows.payload, serialiser.rows
        index = Signal(range(max(p.projected_rows, p.gated_rows, p.rounds)))
        ends, gated, is_value = Signal(), Signal(), Signal()
        turned, turning = self._turn(m, serialiser.pairs, paired)
        attended = self._slices(m, ends)
        m.d.comb += [
            gated.eq(row.kind == RowKind.GATED),
            Value.cast(paired.payload["values"]).eq(Value.cast(row["values"])),
            paired.payload.tag.eq(gated),
            paired.payload.last.eq(ends & gated),
            self.outputs.payload.eq(row["values"]),
            self.projections.valid.eq(turned.valid),
            self.projections.payload.eq(turned.payload["item"]),
            turned.ready.eq(self.projections.ready),
        ]
        with m.Switch(row.kind):
            with m.Case(RowKind.OUTPUT):
                m.d.comb += [
                    self.outputs.valid.eq(rows.valid),
                    rows.ready.eq(self.outputs.ready),
                ]
            with m.Case(RowKind.ATTENDED):
                m.d.comb += [rows.ready.eq(attended), ends.eq(index == p.rounds - 1)]
            with m.Case(RowKind.PROJECTED):
                m.d.comb += [
                    ends.eq(index == p.projected_rows - 1),
                    is_value.eq((index >= p.kv_rounds) & (index < 2 * p.kv_rounds)),
                    paired.valid.eq(rows.valid & ~is_value),
                    rows.ready.eq(paired.ready),
                ]
                with m.If(is_value):
                    m.d.comb += rows.ready.eq(~turning & self.projections.ready)
                # Values follow the keys, which are still being turned.
                with m.If(is_value & ~turning):
                    m.d.comb += [
                        self.projections.valid.eq(rows.valid),
                        self.projections.payload.eq(row["values"]),
                    ]
            with m.Case(RowKind.GATED):
                m.d.comb += [
                    ends.eq(index == p.gated_rows - 1),
                    paired.valid.eq(rows.valid),
                    rows.ready.eq(paired.ready),
                ]
        with m.If(rows.valid & rows.ready & (row.kind != RowKind.OUTPUT)):
            m.d.sync += index.eq(Mux(ends, 0, index + 1))
        return m

    def _turn(self, m: Module, pairs: Any, rows: Any) -> tuple[Any, Value]:
        """Give each pair its angle or its function; return the rows that come back, if any."""
        p = self.parameters
        m.submodules.turned = turned = RowCollector(width=32, items=p.row // 2)
        pair, angles = pairs.payload, Signal(p.angle_layout, reset_less=True)
        ring, returned = Value.cast(angles), self.rotated.payload
        m.d.comb += [
            self.pairs.valid.eq(pairs.valid & ~pair.tag),
            self.pairs.payload.x.eq(pair.x),
            self.pairs.payload.y.eq(pair.y),
            self.pairs.payload.cosine.eq(angles[0].cosine),
            self.pairs.payload.sine.eq(angles[0].sine),
            self.operands.valid.eq(pairs.valid & pair.tag),
            self.operands.payload.gate.eq(pair.x),
            self.operands.payload.up.eq(pair.y),
            self.operands.payload.last.eq(pair.last),
            pairs.ready.eq(Mux(pair.tag, self.operands.ready, self.pairs.ready)),
            turned.items.valid.eq(self.rotated.valid),
            turned.items.payload["item"].eq(Cat(returned.x, returned.y)),
            self.rotated.ready.eq(turned.items.ready),
            self.angles.ready.eq(1),
        ]
        # The angles go round: a row has whole heads.
        with m.If(self.angles.valid):
            m.d.sync += angles.eq(self.angles.payload)
        with m.Elif(self.pairs.valid & self.pairs.ready):
            m.d.sync += ring.eq(ring.rotate_right(32))
        under_way = Signal(range(4))
        enters = rows.valid & rows.ready & ~rows.payload.tag
        leaves = turned.rows.valid & turned.rows.ready
        m.d.sync += under_way.eq(under_way + enters - leaves)
        return turned.rows, under_way != 0

    def _slices(self, m: Module, ends: Value) -> Value:
        """Collect activated elements, split the heads' outputs; return whether the row is split."""
        p = self.parameters
        m.submodules.activated = activated = RowCollector(width=16, items=p.array.width)
        m.d.comb += [
            activated.items.valid.eq(self.activated.valid),
            activated.items.payload["item"].eq(self.activated.payload.value),
            activated.items.payload.last.eq(self.activated.payload.last),
            self.activated.ready.eq(activated.items.ready),
        ]
        slices, row, copy = self.slices, self.rows.payload, Signal(range(p.copies))
        final = copy == p.copies - 1
        attended = self.rows.valid & (row.kind == RowKind.ATTENDED)
        m.d.comb += [
            slices.valid.eq(activated.rows.valid | attended),
            activated.rows.ready.eq(slices.ready),
        ]
        # The heads' outputs come when all activated elements are used.
        with m.If(attended):
            own = Array(Value.cast(values) for values in row["values"])[copy]
            m.d.comb += [
                Value.cast(slices.payload["item"]).eq(own),
                slices.payload.last.eq(ends & final),
            ]
            with m.If(slices.ready):
                m.d.sync += copy.eq(Mux(final, 0, copy + 1))
        with m.Else():
            m.d.comb += slices.payload.eq(activated.rows.payload)
        return slices.ready & final
