"""One of the streams of a matrix's weights: an unpacker, and exactly the specified words."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.instructions import matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.wilu.weight_unpacker import WeightUnpacker
from hdl.stream.connect import buffered, connect_streams
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class WeightStream(Unit):
    """Unpack the packets of matrices, and output their words tile by tile.

    A matrix always has the number of words that is specified, even if its packets are corrupted:
    missing weights are 0, and surplus weights are discarded. So no instruction hangs.

    **Latency** that of `WeightUnpacker` plus 2 cycles. **Throughput** that of `WeightUnpacker`, at
    most one word per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of unpacker and words.

    Members
    -------
    matrices : In(stream)
        `packing` of each matrix, as in `WeightUnpacker`.
    counts : In(stream)
        Number of `words` of each matrix, and of words per output tile (`tile_words`).
    tables, packets : In(stream)
        As in `WeightUnpacker`.
    weights : Out(stream)
        Words of weights; `last` with the last word of a tile.
    results : Out(stream)
        Errors of a matrix, as in `WeightUnpacker`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        layout = matrix_layout(p)
        counts = {name: layout[name].shape for name in ("words", "tile_words")}
        super().__init__(
            {
                "matrices": In(stream.Signature(p.unpacker.matrix_layout)),
                "counts": In(stream.Signature(data.StructLayout(counts))),
                "tables": In(stream.Signature(p.unpacker.table_layout)),
                "packets": In(stream.Signature(p.unpacker.unpacker.packet_layout)),
                "weights": Out(stream.Signature(p.tile.word_layout)),
                "results": Out(stream.Signature(p.unpacker.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the unpacker, and repack its chunks into words."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = WeightUnpacker(parameters=p.unpacker)
        # The unpacker outputs one chunk per lane; a word has as many elements as a head.
        m.submodules.gearbox = gearbox = Gearbox(
            shape=OPERAND, items_in=p.unpacker_items, items_out=p.head_size
        )
        for source, sink in (
            (self.matrices, unpacker.matrices),
            (self.tables, unpacker.tables),
            (self.packets, unpacker.packets),
            (unpacker.results, self.results),
        ):
            connect_streams(m, source, sink)
        # A queue cuts the ready path from the words to the unpacker.
        chunks = buffered(m, "chunks", unpacker.weights, depth=1)
        items = gearbox.source
        m.d.comb += [
            items.valid.eq(chunks.valid),
            Value.cast(items.payload["items"]).eq(Value.cast(chunks.payload.weights)),
            items.payload.count.eq(chunks.payload.count << exact_log2(p.unpacker.chunk)),
            items.payload.last.eq(chunks.payload.last),
            chunks.ready.eq(items.ready),
        ]
        self._count(m, gearbox.sink)
        return m

    def _count(self, m: Module, source: stream.Interface) -> None:
        """Output exactly the specified number of words."""
        out, counts = self.weights, self.counts.payload
        busy, ended = Signal(), Signal()
        left, word = Signal.like(counts.words), Signal.like(counts.tile_words)
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
            self.counts.ready.eq(~busy),
        ]
        # A matrix ends when its words are output and its packets are consumed.
        with m.If(taken & items.last):
            m.d.sync += ended.eq(1)
        with m.If(out.valid & out.ready):
            m.d.sync += [left.eq(left - 1), word.eq(Mux(out.payload.last, 0, word + 1))]
        with m.If(busy & ended & (left == 0)):
            m.d.sync += busy.eq(0)
        with m.If(self.counts.valid & self.counts.ready):
            m.d.sync += [busy.eq(1), ended.eq(0), word.eq(0)]
            m.d.sync += [left.eq(counts.words), length.eq(counts.tile_words)]
