"""Address generator of the input vectors that Kelle requests when a token becomes popular."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.edram.kv_edram import SIDES, row_of
from hdl.memory.burst_port import BurstReadPort
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.unit import Unit


class VectorRows(Unit):
    """Read the input of a token from memory, and write it to the KV eDRAM row by row.

    The first half of an input vector is in the keys' side of its rows, the second half in the
    values' side. Each side of a row is a burst. Channels after the end of a half have no meaning.

    **Latency** that of memory, and 2 cycles. **Throughput** one slice per cycle, and one cycle per
    row.

    Parameters
    ----------
    parameters : KelleAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    stores : In(stream)
        Token and vector, see `Kelle.vector_stores`.
    layer : In
        Layer of the token.
    written : In(1)
        All written inputs are visible.
    port : Out(BurstReadPort)
        The port of inputs.
    rows : Out(stream)
        As `row_writes` of `Kelle`.
    """

    def __init__(self, *, parameters: KelleAxiParameters) -> None:
        self.parameters = p = parameters
        kelle = p.kelle
        self.port_signature = BurstReadPort(
            address_bits=p.address_bits, word_shape=kelle.slice_layout.size, longest=p.longest
        )
        super().__init__(
            {
                "stores": In(stream.Signature(kelle.store_layout)),
                "layer": In(kelle.layer_bits),
                "written": In(1),
                "port": Out(self.port_signature),
                "rows": Out(stream.Signature(kelle.row_write)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Request two bursts per row, assemble their slices, and write the row."""
        m = Module()
        p = self.parameters
        kelle, edram = p.kelle, p.kelle.memory.edram
        half, per_row = kelle.hidden_slices // 2, kelle.row_slices
        # Rows of a vector, of which only the first ones have slices.
        rows = edram.vector_entries * edram.entry_words
        full = -(-half // per_row)
        rest = half - (full - 1) * per_row
        requests, words = self.port.requests, self.port.words
        # Kelle counts the rows that it has requested from the transfer of the request on.
        busy, store = Signal(), Signal(kelle.store_layout, reset_less=True)
        m.d.comb += self.stores.ready.eq(~busy)
        with m.If(self.stores.valid & ~busy):
            m.d.sync += [busy.eq(1), store.eq(self.stores.payload)]

        requested, side = Signal(range(max(full, 2))), Signal()
        all_requested, place = Signal(), Signal(p.input_layout)
        m.d.comb += [
            place.slice.eq(Mux(side, half, 0) + requested * per_row),
            place.token.eq(store.position[: p.recent_bits]),
            place.layer.eq(self.layer),
            requests.payload.address.eq(place.as_value()),
            requests.payload.length.eq(Mux(requested == full - 1, rest, per_row)),
            requests.valid.eq(busy & self.written & ~all_requested),
        ]
        with m.If(requests.valid & requests.ready):
            m.d.sync += side.eq(~side)
            with m.If(side):
                last = requested == full - 1
                m.d.sync += [
                    requested.eq(Mux(last, 0, requested + 1)),
                    all_requested.eq(last),
                ]

        # A row is complete with the last word of the burst of its second side. A row without slices
        # is complete at once.
        row, part = Signal(range(max(rows, 2))), Signal(range(max(per_row, 2)))
        received, complete = Signal(), Signal()
        last_row = row == rows - 1
        slices = [
            Array(
                Signal(kelle.slice_layout.size, name=f"{name}_{i}", reset_less=True)
                for i in range(per_row)
            )
            for name in SIDES
        ]
        with m.If(words.valid & words.ready):
            m.d.sync += part.eq(Mux(words.payload.last, 0, part + 1))
            for number, own in enumerate(slices):
                with m.If(received == number):
                    m.d.sync += own[part].eq(Value.cast(words.payload.word))
            with m.If(words.payload.last):
                m.d.sync += [received.eq(~received), complete.eq(received)]
        vector = kelle.eviction.cached_vector(self.layer, store.vector)
        first = edram.vector_entry(0) * edram.entry_words
        m.d.comb += [
            words.ready.eq(~complete),
            self.rows.valid.eq(complete | (busy & (row >= full))),
            self.rows.payload.address.eq(first + vector * rows + row),
        ]
        bits = kelle.slice_layout.size // kelle.rows
        for side_name, own in zip(SIDES, slices, strict=True):
            channels = [
                own[c // kelle.rows].word_select(c % kelle.rows, bits)
                for c in range(edram.row_channels)
            ]
            m.d.comb += Value.cast(self.rows.payload[side_name]).eq(row_of(edram, channels))
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += [complete.eq(0), row.eq(Mux(last_row, 0, row + 1))]
            with m.If(last_row):
                m.d.sync += [busy.eq(0), all_requested.eq(0)]
        return m
