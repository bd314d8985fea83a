"""Weight unpacking and index look-up (WILU) module (Section 5.4, Figure 5 (a)).

The module looks up the IDs of the mode-aware unpacker in the unique matrix. It loads the next
unique matrix while the current matrix streams.
"""

from typing import Annotated, Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.meadow.wilu.mode_aware_unpacker import ModeAwareUnpacker
from hdl.meadow.wilu.packet_format import LONGEST_ID
from hdl.meadow.wilu.unpacker_parameters import RESULT, UnpackerParameters
from hdl.memory.memory import Memory
from hdl.parameters import Parameters, PowerOfTwo, parameter_object, require
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@parameter_object
class WeightUnpackerParameters(Parameters):
    """Dimensions of a weight unpacker.

    Parameters
    ----------
    unpacker : UnpackerParameters
        Dimensions of the mode-aware unpacker; its IDs must be at least as wide as a chunk, since
        raw weights pass through it as IDs.
    chunk : int
        Weights of a chunk, the paper's C.
    entries : int
        Rows of the largest unique matrix; at most the number of different IDs.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    unpacker: UnpackerParameters = UnpackerParameters()
    chunk: Annotated[int, PowerOfTwo(1, 2, "weights")] = 2
    entries: Annotated[int, PowerOfTwo(2, 1 << LONGEST_ID, "chunks")] = 4096

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        least, bits = 8 * self.chunk, self.unpacker.id_bits
        require(bits >= least, f"unpacker.id_bits must be at least {least}, a chunk's bits", bits)
        most = 1 << bits
        require(self.entries <= most, f"entries must be at most {most}", self.entries)

    @property
    def row_layout(self) -> data.StructLayout:
        """A row of a unique matrix, one chunk; `last` with the last row."""
        return data.StructLayout({"weights": self.chunk_layout, "last": 1})

    @property
    def chunk_layout(self) -> data.ArrayLayout:
        """A chunk; the first weight is in the least significant bits."""
        return data.ArrayLayout(signed(8), self.chunk)

    @property
    def matrix_layout(self) -> data.StructLayout:
        """Description of a matrix; with `bypass` its fields are chunks of raw weights, not IDs."""
        return data.StructLayout({"packed": self.unpacker.matrix_layout, "bypass": 1})

    @property
    def weights_layout(self) -> data.StructLayout:
        """Chunks that are output in one cycle; the first `count` are valid."""
        chunks = data.ArrayLayout(self.chunk_layout, self.unpacker.lanes)
        return data.StructLayout(
            {"weights": chunks, "count": range(self.unpacker.lanes + 1), "last": 1}
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """Errors of a matrix: those of its packets, and of its unique matrix (`table`)."""
        return data.StructLayout({"packets": RESULT, "table": 1})


class WeightUnpacker(Unit):
    """Unpacker of the weights of packed matrices, `unpacker.lanes` chunks per cycle.

    Each lane has a double-buffered copy of the unique matrix: one half is read while the other is
    loaded with the next unique matrix. A matrix begins when its unique matrix is complete.

    **Latency** 1 cycle more than `ModeAwareUnpacker`. **Throughput** that of `ModeAwareUnpacker`.

    **Errors** are those of `ModeAwareUnpacker`, and `table`: the number of rows of the unique
    matrix differs from the description, or exceeds `entries`; rows that do not fit are discarded.
    An ID outside the described or the loaded rows is replaced by 0, and is a `range` error.

    Parameters
    ----------
    parameters : WeightUnpackerParameters
        Dimensions of chunks, tables and packets.

    Members
    -------
    tables : In(stream)
        Rows in the order of IDs, of one unique matrix for each matrix without `bypass`.
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
                "tables": In(stream.Signature(p.row_layout)),
                "matrices": In(stream.Signature(p.matrix_layout)),
                "packets": In(stream.Signature(p.unpacker.packet_layout)),
                "weights": Out(stream.Signature(p.weights_layout)),
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Load one half of the tables, and look up IDs in the other."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = ModeAwareUnpacker(parameters=p.unpacker)
        connect_streams(m, self.packets, unpacker.packets)
        # `half` is read. Each half has a flag if it is complete, its number of rows, and a flag if
        # rows were discarded (`cut`).
        half, complete = Signal(), Signal(2)
        sizes = [Signal(p.unpacker.id_bits + 1, name=f"size_{i}", reset_less=True) for i in (0, 1)]
        cut = Signal(2)
        bypass, differs = Signal(), Signal()

        told = self.matrices.payload
        size, unique = Array(sizes)[half], told.packed.unique
        fewer = size < unique
        begins = told.bypass | complete.bit_select(half, 1)
        m.d.comb += [
            unpacker.matrices.payload.eq(told.packed),
            # An ID outside the loaded rows would read rows of an earlier matrix.
            unpacker.matrices.payload.unique.eq(Mux(~told.bypass & fewer, size, unique)),
            unpacker.matrices.valid.eq(self.matrices.valid & begins),
            self.matrices.ready.eq(unpacker.matrices.ready & begins),
            self.results.payload.packets.eq(unpacker.results.payload),
            self.results.payload.table.eq(differs),
            self.results.valid.eq(unpacker.results.valid),
            unpacker.results.ready.eq(self.results.ready),
        ]
        with m.If(self.matrices.valid & self.matrices.ready):
            wrong = (size != unique) | cut.bit_select(half, 1)
            m.d.sync += [bypass.eq(told.bypass), differs.eq(~told.bypass & wrong)]
        # The half is free for another unique matrix when its last look-up is complete.
        released = self.results.valid & self.results.ready & ~bypass
        with m.If(released):
            m.d.sync += half.eq(~half)
        writes = self._fill(m, half, released, complete, cut, sizes)
        self._look_up(m, unpacker.groups, (half, bypass), writes)
        return m

    def _fill(
        self,
        m: Module,
        half: Value,
        released: Value,
        complete: Signal,
        cut: Signal,
        sizes: list[Signal],
    ) -> tuple[Value, Value]:
        """Load rows into the free half; return the write enable and address."""
        p = self.parameters
        filled, row = Signal(), Signal(ceil_log2(p.entries) + 1)
        taken, fits, writes = self.tables.payload, Signal(), Signal()
        # Rows that do not fit are discarded and reported as an error of the matrix.
        takes = self.tables.valid & self.tables.ready
        m.d.comb += [
            self.tables.ready.eq(~complete.bit_select(filled, 1)),
            fits.eq(row != p.entries),
            writes.eq(takes & fits),
        ]
        with m.If(released):
            m.d.sync += complete.bit_select(half, 1).eq(0)
        with m.If(takes):
            m.d.sync += row.eq(Mux(taken.last, 0, row + fits))
            with m.If(taken.last):
                m.d.sync += [
                    filled.eq(~filled),
                    complete.bit_select(filled, 1).eq(1),
                    cut.bit_select(filled, 1).eq(~fits),
                    Array(sizes)[filled].eq(row + fits),
                ]
        return writes, Cat(row[: ceil_log2(p.entries)], filled)

    def _look_up(
        self, m: Module, groups: Any, read: tuple[Value, Value], writes: tuple[Value, Value]
    ) -> None:
        """Read the chunks of all lanes in the same cycle, each from its own copy."""
        p = self.parameters
        half, bypass = read
        out, group, bits = self.weights.payload, groups.payload, 8 * p.chunk
        # Raw weights bypass the tables through a register of the same latency.
        passed = Signal(data.ArrayLayout(unsigned(bits), p.unpacker.lanes), reset_less=True)
        as_they_are = Signal(reset_less=True)
        moves = ~self.weights.valid | self.weights.ready
        m.d.comb += groups.ready.eq(moves)
        with m.If(moves):
            m.d.sync += [
                self.weights.valid.eq(groups.valid),
                as_they_are.eq(bypass),
                out.count.eq(group.count),
                out.last.eq(group.last),
            ]
        for lane in range(p.unpacker.lanes):
            m.submodules[f"table_{lane}"] = table = Memory(depth=2 * p.entries, width=bits)
            place = group.ids[lane][: ceil_log2(p.entries)]
            m.d.comb += [
                table.read_enable.eq(groups.valid & moves),
                table.read_address.eq(Cat(place, half)),
                table.write_enable.eq(writes[0]),
                table.write_address.eq(writes[1]),
                table.write_data.eq(Value.cast(self.tables.payload.weights)),
                Value.cast(out.weights[lane]).eq(
                    Mux(out.count > lane, Mux(as_they_are, passed[lane], table.read_data), 0)
                ),
            ]
            with m.If(moves):
                m.d.sync += passed[lane].eq(group.ids[lane][:bits])
