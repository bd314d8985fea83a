"""Weight path: fetch packets and unique matrices, unpack them, and output words of weights."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.instructions import matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.wilu.weight_unpacker import WeightUnpacker
from hdl.stream.connect import connect_handshake, every
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class WeightPath(Unit):
    """Fetch and unpack matrices, and output their words and biases tile by tile.

    The path does not depend on instructions: it prefetches until the tile's buffers are full.
    The unique matrix and packets of the next matrix are requested while the current one streams.

    A matrix always has the number of words that its description specifies, even if its packets are
    corrupted: missing weights are 0, and surplus weights are discarded. So no instruction hangs.

    **Latency** that of `WeightUnpacker` plus 2 cycles. **Throughput** that of `WeightUnpacker`, at
    most one word per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of unpacker and words.

    Members
    -------
    matrices : In(stream)
        `packing` as in `WeightUnpacker`; `table_address` and `table_words` of the unique matrix;
        `packet_address` and `packet_count`; the number of `words` and of words per output tile
        (`tile_words`); with the parameter `biases` the `bias_address`, with `tile_scales` the
        `scale_address`, and with either the number of output `tiles`.
    table_reads, packet_reads : Out(port)
        Words of unique matrices; packets.
    bias_reads : Out(port)
        Pairs of biases; present with the parameter `biases`.
    scale_reads : Out(port)
        Scale and shift of each tile; present with the parameter `tile_scales`.
    weights : Out(stream)
        Words of weights; `last` with the last word of a tile.
    biases : Out(stream)
        As in `HybridTile`; present with the parameter `biases`.
    scales : Out(stream)
        As in `HybridTile`; present with the parameter `tile_scales`.
    errors : Out(struct)
        Errors of all matrices since `clear_flags`.
    clear_flags : In(1)
        Clear the errors.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        biases = {
            "bias_reads": Out(p.reads(p.bias_layout)),
            "biases": Out(stream.Signature(p.tile.bias_layout)),
        }
        scales = {
            "scale_reads": Out(p.reads(p.factor_layout)),
            "scales": Out(stream.Signature(p.tile.scale_layout)),
        }
        super().__init__(
            {
                "matrices": In(stream.Signature(matrix_layout(p))),
                "table_reads": Out(p.reads(p.unpacker.rows_layout)),
                "packet_reads": Out(p.reads(p.unpacker.unpacker.packet_bits)),
                "weights": Out(stream.Signature(p.tile.word_layout)),
                **(biases if p.biases else {}),
                **(scales if p.tile_scales else {}),
                "errors": Out(p.unpacker.result_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the unpacker; accumulate its errors."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = WeightUnpacker(parameters=p.unpacker)
        # The unpacker outputs one chunk per lane; a word has as many elements as a head.
        m.submodules.gearbox = gearbox = Gearbox(
            shape=OPERAND, items_in=p.unpacker_items, items_out=p.head_size
        )
        for port, sink, name in (
            (self.table_reads, unpacker.tables, "weights"),
            (self.packet_reads, unpacker.packets, "packet"),
        ):
            m.d.comb += [
                sink.valid.eq(port.words.valid),
                Value.cast(sink.payload[name]).eq(Value.cast(port.words.payload.word)),
                sink.payload.last.eq(port.words.payload.last),
                port.words.ready.eq(sink.ready),
            ]
        chunks, items = unpacker.weights, gearbox.source
        m.d.comb += [
            items.valid.eq(chunks.valid),
            Value.cast(items.payload["items"]).eq(Value.cast(chunks.payload.weights)),
            items.payload.count.eq(chunks.payload.count << exact_log2(p.unpacker.chunk)),
            items.payload.last.eq(chunks.payload.last),
            chunks.ready.eq(items.ready),
            unpacker.results.ready.eq(1),
        ]
        found, errors = Value.cast(unpacker.results.payload), Value.cast(self.errors)
        m.d.sync += errors.eq(
            Mux(self.clear_flags, 0, errors) | Mux(unpacker.results.valid, found, 0)
        )
        if p.biases:
            self._biases(m)
        if p.tile_scales:
            words, scales = self.scale_reads.words, self.scales
            m.d.comb += [scales.payload.word.eq(words.payload.word), scales.payload.last.eq(1)]
            connect_handshake(m, words, scales)
        self._count(m, gearbox.sink, unpacker)
        return m

    def _biases(self, m: Module) -> None:
        """Mark the last pair of biases of each tile."""
        p, words, biases = self.parameters, self.bias_reads.words, self.biases
        pair = Signal(exact_log2(p.tile_pairs))
        m.d.comb += [
            biases.valid.eq(words.valid),
            biases.payload.word.eq(words.payload.word),
            biases.payload.last.eq(pair.all()),
            words.ready.eq(biases.ready),
        ]
        with m.If(biases.valid & biases.ready):
            m.d.sync += pair.eq(pair + 1)

    def _dispatch(self, m: Module, unpacker: WeightUnpacker, idle: Value) -> Value:
        """Offer a matrix to all its consumers, each of which accepts it independently.

        Returns
        -------
        Value
            Whether the counter starts with the matrix, which requires the counter to be `idle`.
        """
        p = self.parameters
        matrix, tables, packets = self.matrices.payload, self.table_reads, self.packet_reads
        begins = Signal()
        m.d.comb += [
            tables.requests.payload.address.eq(matrix.table_address),
            tables.requests.payload.length.eq(matrix.table_words),
            packets.requests.payload.address.eq(matrix.packet_address),
            packets.requests.payload.length.eq(matrix.packet_count),
            unpacker.matrices.payload.eq(matrix.packing),
        ]
        # The next table and packets are requested while the unpacker processes the current matrix.
        # Raw weights have no unique matrix.
        takers = {
            "table": (tables.requests.valid, tables.requests.ready, ~matrix.packing.bypass),
            "packets": (packets.requests.valid, packets.requests.ready, 1),
            "unpacker": (unpacker.matrices.valid, unpacker.matrices.ready, 1),
            "count": (begins, idle, 1),
        }
        if p.biases:
            # A tile has the same number of bias pairs whatever the matrix's inner dimension.
            biases = self.bias_reads.requests
            m.d.comb += [
                biases.payload.address.eq(matrix.bias_address),
                biases.payload.length.eq(matrix.tiles << exact_log2(p.tile_pairs)),
            ]
            takers["biases"] = (biases.valid, biases.ready, 1)
        if p.tile_scales:
            scales = self.scale_reads.requests
            m.d.comb += [
                scales.payload.address.eq(matrix.scale_address),
                scales.payload.length.eq(matrix.tiles),
            ]
            takers["scales"] = (scales.valid, scales.ready, 1)
        over = []
        for name, (valid, ready, wanted) in takers.items():
            done = Signal(name=f"{name}_done")
            m.d.comb += valid.eq(self.matrices.valid & ~done & wanted)
            over.append(done | ready | ~Value.cast(wanted).bool())
            with m.If(self.matrices.ready & self.matrices.valid):
                m.d.sync += done.eq(0)
            with m.Elif(valid & ready):
                m.d.sync += done.eq(1)
        m.d.comb += self.matrices.ready.eq(every(over))
        return begins & idle

    def _count(self, m: Module, source: stream.Interface, unpacker: WeightUnpacker) -> None:
        """Output exactly the specified number of words."""
        p, out = self.parameters, self.weights
        busy, ended = Signal(), Signal()
        layout = matrix_layout(p)
        left, word = Signal(layout["words"].shape), Signal(layout["tile_words"].shape)
        length = Signal.like(word, reset_less=True)
        items, real, drains = source.payload, Signal(), Signal()
        taken = source.valid & source.ready
        m.d.comb += [
            real.eq(source.valid & ~ended & (items.count != 0)),
            out.valid.eq(busy & (left != 0) & (real | ended)),
            out.payload.last.eq(word + 1 == length),
            # An empty last group and surplus words are discarded.
            drains.eq((left == 0) | (items.count == 0)),
            source.ready.eq(busy & ~ended & (drains | out.ready)),
            *(
                weight.eq(Mux(real & (items.count > place), items["items"][place], 0))
                for place, weight in enumerate(out.payload.word)
            ),
        ]
        # A matrix ends when its words are output and its packets are consumed.
        with m.If(taken & items.last):
            m.d.sync += ended.eq(1)
        with m.If(out.valid & out.ready):
            m.d.sync += [left.eq(left - 1), word.eq(Mux(out.payload.last, 0, word + 1))]
        with m.If(busy & ended & (left == 0)):
            m.d.sync += busy.eq(0)
        matrix = self.matrices.payload
        with m.If(self._dispatch(m, unpacker, ~busy)):
            m.d.sync += [busy.eq(1), ended.eq(0), word.eq(0)]
            m.d.sync += [left.eq(matrix.words), length.eq(matrix.tile_words)]
