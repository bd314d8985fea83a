"""The way of the weights: packets and unique matrices from outside, unpacked, word by word."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.wilu.weight_unpacker import WeightUnpacker
from hdl.stream.connect import every
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class WeightPath(Unit):
    """Fetch matrices, unpack them, and hand their words on tile by tile, and so their biases.

    The path knows no instructions: it runs ahead of them as far as the pipeline's buffers take
    words. A matrix's unique matrix and packets are requested while the one before streams.

    However damaged its packets are, a matrix has as many words as is told: what lacks is 0, what is
    too much is dropped. So no instruction waits for ever.

    **Latency** that of `WeightUnpacker` and 2 cycles. **Throughput** its own, at most a word a
    cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    matrices : In(stream)
        `packing` as of `WeightUnpacker`; where `rows` of its unique matrix begin, and its `number`
        of packets; how many `words` it has, and how many are a `tile`; with the parameter `biases`
        where its `biases` begin, and how many `tiles` have them.
    table_reads, packet_reads : Out(port)
        Rows of unique matrices; packets.
    bias_reads : Out(port)
        Pairs of biases, if there are biases.
    weights : Out(stream)
        Words; `last` with a tile's last.
    biases : Out(stream)
        As of `AttentionPipeline`, if there are biases.
    damage : Out(struct)
        What was wrong with any matrix, until `clear_flags`.
    clear_flags : In(1)
        Forget it.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        biases = {
            "bias_reads": Out(p.reads(p.bias_layout)),
            "biases": Out(stream.Signature(p.attention.bias_layout)),
        }
        super().__init__(
            {
                "matrices": In(stream.Signature(p.matrix_layout)),
                "table_reads": Out(p.reads(p.unpacker.chunk_layout)),
                "packet_reads": Out(p.reads(p.unpacker.unpacker.packet_bits)),
                "weights": Out(stream.Signature(p.attention.word_layout)),
                **(biases if p.biases else {}),
                "damage": Out(p.unpacker.result_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the unpacker; keep what it found wrong."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = WeightUnpacker(parameters=p.unpacker)
        # Chunks come as many a cycle as there are lanes; words have a head's elements.
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
        found, damage = Value.cast(unpacker.results.payload), Value.cast(self.damage)
        m.d.sync += damage.eq(
            Mux(self.clear_flags, 0, damage) | Mux(unpacker.results.valid, found, 0)
        )
        if p.biases:
            self._biases(m)
        self._count(m, gearbox.sink, unpacker)
        return m

    def _biases(self, m: Module) -> None:
        """Say where a tile's biases end."""
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
        """Offer a matrix to all that deal with it, each of which takes it when it can.

        Returns
        -------
        Value
            Whether its words begin to be counted, for which the count must be `idle`.
        """
        p = self.parameters
        told, tables, packets = self.matrices.payload, self.table_reads, self.packet_reads
        begins = Signal()
        m.d.comb += [
            tables.requests.payload.address.eq(told.table),
            tables.requests.payload.length.eq(told.rows),
            packets.requests.payload.address.eq(told.packets),
            packets.requests.payload.length.eq(told.number),
            unpacker.matrices.payload.eq(told.packing),
        ]
        # The next matrix's table and packets are asked for while the unpacker has this one's.
        # Raw weights have no unique matrix.
        takers = {
            "table": (tables.requests.valid, tables.requests.ready, ~told.packing.bypass),
            "packets": (packets.requests.valid, packets.requests.ready, 1),
            "unpacker": (unpacker.matrices.valid, unpacker.matrices.ready, 1),
            "count": (begins, idle, 1),
        }
        if p.biases:
            # A tile's biases are as many words for each matrix, whatever its inner dimension.
            biases = self.bias_reads.requests
            m.d.comb += [
                biases.payload.address.eq(told.biases),
                biases.payload.length.eq(told.tiles << exact_log2(p.tile_pairs)),
            ]
            takers["biases"] = (biases.valid, biases.ready, 1)
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

    def _count(self, m: Module, source: Any, unpacker: WeightUnpacker) -> None:
        """Give as many words as there must be."""
        p, out = self.parameters, self.weights
        busy, ended = Signal(), Signal()
        left, tile = Signal(p.matrix_layout["words"].shape), Signal(p.matrix_layout["tile"].shape)
        length = Signal.like(tile, reset_less=True)
        items, real, drains = source.payload, Signal(), Signal()
        taken = source.valid & source.ready
        m.d.comb += [
            real.eq(source.valid & ~ended & (items.count != 0)),
            out.valid.eq(busy & (left != 0) & (real | ended)),
            out.payload.last.eq(tile + 1 == length),
            # An empty end, or what is too much, goes nowhere.
            drains.eq((left == 0) | (items.count == 0)),
            source.ready.eq(busy & ~ended & (drains | out.ready)),
            *(
                weight.eq(Mux(real & (items.count > place), items["items"][place], 0))
                for place, weight in enumerate(out.payload.word)
            ),
        ]
        # A matrix is over when its words are given and its packets are used up.
        with m.If(taken & items.last):
            m.d.sync += ended.eq(1)
        with m.If(out.valid & out.ready):
            m.d.sync += [left.eq(left - 1), tile.eq(Mux(out.payload.last, 0, tile + 1))]
        with m.If(busy & ended & (left == 0)):
            m.d.sync += busy.eq(0)
        told = self.matrices.payload
        with m.If(self._dispatch(m, unpacker, ~busy)):
            m.d.sync += [busy.eq(1), ended.eq(0), tile.eq(0)]
            m.d.sync += [left.eq(told.words), length.eq(told.tile)]
