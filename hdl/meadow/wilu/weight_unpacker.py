"""Weight unpacking and index look-up (WILU) module (Section 5.4, Figure 5 (a)).

The module looks up the IDs of the mode-aware unpacker in the unique matrix. It loads the next
unique matrix while the current matrix streams.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.wilu.mode_aware_unpacker import ModeAwareUnpacker
from hdl.meadow.wilu.table_loader import TableLoader
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class WeightUnpacker(Unit):
    """Unpacker of the weights of packed matrices, `unpacker.lanes` chunks per cycle.

    Each lane has a double-buffered copy of the unique matrix: one half is read while the other is
    loaded with the next unique matrix, a word of `rows` rows per cycle. A matrix begins when its
    unique matrix is complete.

    **Latency** 1 cycle more than `ModeAwareUnpacker`. **Throughput** that of `ModeAwareUnpacker`.

    **Errors** are those of `ModeAwareUnpacker`, and `table`: the number of words of the unique
    matrix is not that of the described rows, or exceeds the table; words that do not fit are
    discarded.
    An ID outside the described or the loaded rows is replaced by 0, and is a `range` error.

    Parameters
    ----------
    parameters : WeightUnpackerParameters
        Dimensions of chunks, tables and packets.

    Members
    -------
    tables : In(stream)
        Words of rows in the order of IDs, of one unique matrix for each matrix without `bypass`.
        Rows after the last one, up to the end of the word, are never read if the description is
        correct.
    matrices : In(stream)
        As in `ModeAwareUnpacker`, and `bypass` for raw weights: then `kind` is `FIXED`, the width
        is that of a chunk, `unique` is its maximum, and there is no unique matrix.
    packets : In(stream)
        As in `ModeAwareUnpacker`.
    weights : Out(stream)
        Chunks in the order of the matrix, the first in lane 0. The first `count` are valid, and the
        others are 0. `last` with the last group of the matrix.
    results : Out(stream)
        Errors of a matrix, valid in the same cycle as its last weights or later.

    Raises
    ------
    ValueError
        If a rule of `WeightUnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: WeightUnpackerParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "tables": In(stream.Signature(p.table_layout)),
                "matrices": In(stream.Signature(p.matrix_layout)),
                "packets": In(stream.Signature(p.unpacker.packet_layout)),
                "weights": Out(stream.Signature(p.weights_layout)),
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Begin a matrix when its unique matrix is complete; look up its IDs."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = ModeAwareUnpacker(parameters=p.unpacker)
        m.submodules.loader = loader = TableLoader(parameters=p)
        connect_streams(m, self.packets, unpacker.packets)
        connect_streams(m, self.tables, loader.words)
        bypass, differs = Signal(), Signal()
        matrix = self.matrices.payload
        unique = matrix.packed.unique
        begins = matrix.bypass | loader.complete
        m.d.comb += [
            unpacker.matrices.payload.eq(matrix.packed),
            # An ID outside the loaded rows would read rows of an earlier matrix.
            unpacker.matrices.payload.unique.eq(
                Mux(~matrix.bypass & (loader.size < unique), loader.size, unique)
            ),
            unpacker.matrices.valid.eq(self.matrices.valid & begins),
            self.matrices.ready.eq(unpacker.matrices.ready & begins),
            self.results.payload.packets.eq(unpacker.results.payload),
            self.results.payload.table.eq(differs),
            self.results.valid.eq(unpacker.results.valid),
            unpacker.results.ready.eq(self.results.ready),
            # Raw weights leave the loaded table to the next matrix.
            loader.release.eq(self.results.valid & self.results.ready & ~bypass),
        ]
        with m.If(self.matrices.valid & self.matrices.ready):
            # The rows of the last word that are not described are padding.
            padded = unique + (p.rows - 1)
            fill = exact_log2(p.rows)
            wrong = (loader.size[fill:] != padded[fill:]) | loader.cut
            m.d.sync += [bypass.eq(matrix.bypass), differs.eq(~matrix.bypass & wrong)]
        self._look_up(m, unpacker.groups, loader, bypass)
        return m

    def _look_up(
        self, m: Module, groups: stream.Interface, loader: TableLoader, bypass: Value
    ) -> None:
        """Read the chunks of all lanes in the same cycle, each from its own copy."""
        p = self.parameters
        out, group, bits = self.weights.payload, groups.payload, 8 * p.chunk
        # Raw weights bypass the tables through a register of the same latency.
        passed = Signal(data.ArrayLayout(unsigned(bits), p.unpacker.lanes), reset_less=True)
        raw = Signal(reset_less=True)
        moves = ~self.weights.valid | self.weights.ready
        fill = exact_log2(p.rows)
        m.d.comb += groups.ready.eq(moves)
        with m.If(moves):
            m.d.sync += [
                self.weights.valid.eq(groups.valid),
                raw.eq(bypass),
                out.count.eq(group.count),
                out.last.eq(group.last),
            ]
        for lane in range(p.unpacker.lanes):
            m.submodules[f"table_{lane}"] = table = Memory(depth=2 * p.words, width=p.rows * bits)
            # The table is read by words; a register selects the row of the word.
            row = Signal(fill, name=f"row_{lane}", reset_less=True)
            read = Signal(bits, name=f"read_{lane}")
            word = group.ids[lane][fill:][: p.address_bits - 1]
            m.d.comb += [
                read.eq(table.read_data.word_select(row, bits)),
                table.read_enable.eq(groups.valid & moves),
                table.read_address.eq(Cat(word, loader.half)),
                table.write_enable.eq(loader.write_enable),
                table.write_address.eq(loader.write_address),
                table.write_data.eq(Value.cast(self.tables.payload.weights)),
                Value.cast(out.weights[lane]).eq(
                    Mux(out.count > lane, Mux(raw, passed[lane], read), 0)
                ),
            ]
            with m.If(moves):
                m.d.sync += [passed[lane].eq(group.ids[lane][:bits]), row.eq(group.ids[lane])]
