"""The weight unpacking and index look-up (WILU) module (Section 5.4, Figure 5 (a)).

The mode-aware unpacker's IDs are looked up in the unique matrix. That of the next matrix comes in
while the present one streams.
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
        Of the mode-aware unpacker; its IDs must be as wide as a chunk, which raw weights are.
    chunk : int
        Weights of a chunk, C.
    entries : int
        Rows of the largest unique matrix; no more than there are IDs.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
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
        """A row of a unique matrix; `last` with the last."""
        return data.StructLayout({"weights": self.chunk_layout, "last": 1})

    @property
    def chunk_layout(self) -> data.ArrayLayout:
        """A chunk, its first weight lowest."""
        return data.ArrayLayout(signed(8), self.chunk)

    @property
    def matrix_layout(self) -> data.StructLayout:
        """What is told of a matrix; `bypass` if its fields are chunks of weights, no IDs."""
        return data.StructLayout({"packed": self.unpacker.matrix_layout, "bypass": 1})

    @property
    def weights_layout(self) -> data.StructLayout:
        """Chunks that leave together; `count` of them are there."""
        chunks = data.ArrayLayout(self.chunk_layout, self.unpacker.lanes)
        return data.StructLayout(
            {"weights": chunks, "count": range(self.unpacker.lanes + 1), "last": 1}
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """What was wrong: as of the unpacker, or the unique matrix."""
        return data.StructLayout({"packets": RESULT, "table": 1})


class WeightUnpacker(Unit):
    """Return the weights of packed matrices, `unpacker.lanes` chunks a cycle.

    Each lane has a copy of the unique matrix, and each copy two halves: one is read, the other
    takes in the next matrix's. A matrix begins when its unique matrix is complete.

    **Latency** 1 cycle behind the mode-aware unpacker. **Throughput** its own.

    **Errors** are those of `ModeAwareUnpacker`, and `table`: the unique matrix has another number
    of rows than the matrix says, or more than fit; those are dropped. An ID beyond either number
    is read as ID 0, and is an error of `range`.

    Parameters
    ----------
    parameters : WeightUnpackerParameters
        Dimensions.

    Members
    -------
    tables : In(stream)
        Rows of unique matrices, one for each matrix that has no `bypass`, in the order of IDs.
    matrices : In(stream)
        As of `ModeAwareUnpacker`, and `bypass`: then `kind` is `FIXED`, the width is a chunk's,
        `unique` as much as it can be, and there is no unique matrix.
    packets : In(stream)
        As of `ModeAwareUnpacker`.
    weights : Out(stream)
        Chunks in the matrix's order, the first in lane 0; `count` of them are there, and the
        others are 0; `last` with the matrix's last.
    results : Out(stream)
        What was wrong with a matrix, offered when its last weights are, or later.

    Raises
    ------
    ValueError
        By `WeightUnpackerParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Fill one half of the tables, and look up in the other."""
        m = Module()
        p = self.parameters
        m.submodules.unpacker = unpacker = ModeAwareUnpacker(parameters=p.unpacker)
        connect_streams(m, self.packets, unpacker.packets)
        # The half that is read; whether each is complete, of how many rows, and whether cut.
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
            # An ID beyond the rows that came would read what another matrix left.
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
        # The half is free for another unique matrix once nothing looks up in it.
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
        """Take rows into the half that is free; return whether one is written, and where."""
        p = self.parameters
        filled, row = Signal(), Signal(ceil_log2(p.entries) + 1)
        taken, fits, writes = self.tables.payload, Signal(), Signal()
        # Rows that do not fit are taken and dropped, and the matrix is told so.
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
        """Read all lanes' chunks at once, each from its own copy."""
        p = self.parameters
        half, bypass = read
        out, group, bits = self.weights.payload, groups.payload, 8 * p.chunk
        # Raw weights pass beside the tables, as late as what is looked up.
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
