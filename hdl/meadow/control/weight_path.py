"""Weight path: fetch packets and unique matrices, unpack them, and output words of weights."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.control.weight_stream import WeightStream
from hdl.meadow.instructions import matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.stream.connect import connect_handshake, every, fork_handshake
from hdl.unit import Unit


class WeightPath(Unit):
    """Fetch and unpack matrices, and output their words and biases tile by tile.

    The path does not depend on instructions: it prefetches until the tile's buffers are full.
    The unique matrix and packets of the next matrix are requested while the current one streams.

    The words of a matrix are distributed to `unpackers` unpackers in round-robin order: unpacker i
    of n has the words i, i + n, ... Each unpacker has packets of its own; all load the same unique
    matrix.

    **Latency** that of `WeightStream`. **Throughput** that of `WeightStream` for each unpacker, one
    item per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of unpacker and words.

    Members
    -------
    matrices : In(stream)
        `packing` as in `WeightUnpacker`; `table_address` and `table_words` of the unique matrix;
        `packet_address` and `packet_count` of each unpacker; for one unpacker the number of `words`
        and of words per output tile (`tile_words`); with the parameter `biases` the `bias_address`,
        with `tile_scales` the `scale_address`, and with either the number of output `tiles`.
    table_reads, packet_reads : Out(port)
        Words of unique matrices; packets of one unpacker. Several unpackers have the ports
        `packet_reads_0`, `packet_reads_1`, ...
    bias_reads : Out(port)
        Pairs of biases; present with the parameter `biases`.
    scale_reads : Out(port)
        Scale and shift of each tile; present with the parameter `tile_scales`.
    weights : Out(stream)
        A word of each unpacker; `last` with the last words of a tile.
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
                **{name: Out(p.reads(p.unpacker.unpacker.packet_bits)) for name in p.packet_ports},
                "weights": Out(stream.Signature(p.tile.weight_port_layout)),
                **(biases if p.biases else {}),
                **(scales if p.tile_scales else {}),
                "errors": Out(p.unpacker.result_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the streams of the unpackers; accumulate their errors."""
        m = Module()
        p, tables = self.parameters, self.table_reads
        streams = [WeightStream(parameters=p) for _ in p.packet_ports]
        for number, (one, name) in enumerate(zip(streams, p.packet_ports, strict=True)):
            m.submodules[f"stream_{number}"] = one
            words = getattr(self, name).words
            m.d.comb += [
                one.packets.payload.packet.eq(words.payload.word),
                one.packets.payload.last.eq(words.payload.last),
                one.tables.payload.weights.eq(tables.words.payload.word),
                one.tables.payload.last.eq(tables.words.payload.last),
                self.weights.payload.word[number].eq(one.weights.payload.word),
                one.results.ready.eq(1),
            ]
            connect_handshake(m, words, one.packets)
        # All unpackers load the unique matrix at the same time.
        loads = [one.tables for one in streams]
        outputs = [one.weights for one in streams]
        for one in outputs:
            # `ready` of a stream does not depend on its own `valid`, which a long path computes.
            others = every([other.valid for other in outputs if other is not one])
            m.d.comb += one.ready.eq(self.weights.ready & others)
        m.d.comb += [
            tables.words.ready.eq(fork_handshake(m, tables.words.valid, loads)),
            self.weights.valid.eq(every([one.valid for one in outputs])),
            self.weights.payload.last.eq(streams[0].weights.payload.last),
        ]
        reports = [one.results for one in streams]
        found = [Mux(one.valid, Value.cast(one.payload), 0) for one in reports]
        errors = Value.cast(self.errors)
        m.d.sync += errors.eq(reduce(or_, found, Mux(self.clear_flags, 0, errors)))
        if p.biases:
            self._biases(m)
        if p.tile_scales:
            words, scales = self.scale_reads.words, self.scales
            m.d.comb += [scales.payload.word.eq(words.payload.word), scales.payload.last.eq(1)]
            connect_handshake(m, words, scales)
        self._dispatch(m, streams)
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

    def _dispatch(self, m: Module, streams: Sequence[WeightStream]) -> None:
        """Offer a matrix to all its consumers, each of which accepts it independently."""
        p = self.parameters
        matrix, tables = self.matrices.payload, self.table_reads
        m.d.comb += [
            tables.requests.payload.address.eq(matrix.table_address),
            tables.requests.payload.length.eq(matrix.table_words),
        ]
        # The next table and packets are requested while the unpacker processes the current matrix.
        # Raw weights have no unique matrix.
        takers: dict[str, tuple[Value, Value, ValueLike]] = {
            "table": (tables.requests.valid, tables.requests.ready, ~matrix.packing.bypass)
        }
        for number, (one, name) in enumerate(zip(streams, p.packet_ports, strict=True)):
            packets = getattr(self, name).requests
            m.d.comb += [
                packets.payload.address.eq(matrix.packet_address[number]),
                packets.payload.length.eq(matrix.packet_count[number]),
                one.matrices.payload.eq(matrix.packing),
                one.counts.payload.words.eq(matrix.words),
                one.counts.payload.tile_words.eq(matrix.tile_words),
            ]
            for kind, sink in (
                ("packets", packets),
                ("unpacker", one.matrices),
                ("count", one.counts),
            ):
                takers[f"{kind}_{number}"] = (sink.valid, sink.ready, 1)
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
