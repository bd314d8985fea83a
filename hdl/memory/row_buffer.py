"""Row buffer: stores the slices of a row until a result that depends on the whole row is known."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class RowBuffer(Unit):
    """A ring buffer that outputs the slices of a row, in order, after the row's result arrives.

    A slice reserves its entry when it is taken. So the logic between `take` and `write`, and
    between `write` and `results`, never stalls.

    The two memories are the swap points for SRAM. Each has one write and one read port, which never
    access the same address in the same cycle.

    **Latency** a slice's tag and its row's result are output one enabled cycle after the row's
    result arrives, its data one enabled cycle later. **Throughput** one slice per cycle; no slice
    is accepted while `rows` complete rows are stored or in flight.

    Parameters
    ----------
    data_shape : ShapeLike
        Shape of a slice's data; hashable.
    tag_shape : ShapeLike, optional
        Shape of the tag, which is output one cycle before the data; hashable. No tag if omitted.
    result_shape : ShapeLike
        Shape of the result of a row; hashable.
    depth : int
        Number of slices, 2 to 4096. The longest row must fit. Full throughput takes as many more
        slices as there are cycles from a row's last slice to its result.
    rows : int
        Maximum number of complete rows, in flight or stored, 1 to 16.

    Members
    -------
    room : Out(1)
        A slice may be taken.
    take, take_last : In(1)
        A slice is taken; it is the last of its row.
    write : In
        `strobe`, `last`, `tag` and `data` of a slice that was taken before.
    results : In(stream)
        Results of the rows, in order; always ready for the rows in flight.
    enable : In(1)
        The read side advances.
    valid, last, tag, result : Out
        Validity, tag and row result of the current slice; `last` with the last slice of a row.
    data : Out
        The data of the slice whose tag was output one enabled cycle before.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(
        self,
        *,
        data_shape: ShapeLike,
        result_shape: ShapeLike,
        depth: int,
        rows: int,
        tag_shape: ShapeLike | None = None,
    ) -> None:
        require_range("depth", depth, 2, 4096)
        require_range("rows", rows, 1, 16)
        self.data_shape, self.tag_shape, self.result_shape = data_shape, tag_shape, result_shape
        self.depth, self.rows = depth, rows
        held: dict[str, ShapeLike] = {"data": data_shape}
        if tag_shape is not None:
            held["tag"] = tag_shape
        written = {"strobe": 1, "last": 1} | held
        super().__init__(
            {
                "room": Out(1),
                "take": In(1),
                "take_last": In(1),
                "write": In(data.StructLayout(written)),
                "results": In(stream.Signature(result_shape)),
                "enable": In(1),
                "valid": Out(1),
                "last": Out(1),
                "result": Out(result_shape),
            }
            | {name: Out(shape) for name, shape in held.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """Connect two memories to common pointers, and count the credits."""
        m = Module()
        pointer = range(self.depth)
        write_pointer, read_pointer = Signal(pointer), Signal(pointer)
        data_pointer = Signal(pointer, reset_less=True)

        # The read side needs the end of each complete row, and its result.
        m.submodules.ends = ends = Fifo(shape=data_pointer.shape(), depth=self.rows)
        m.submodules.waiting = waiting = Fifo(shape=self.result_shape, depth=self.rows)
        # A row is read only after its result arrives; the result is held for all its slices.
        read = waiting.sink.valid & self.enable
        reads_last = read_pointer == ends.sink.payload
        m.d.comb += [
            ends.source.valid.eq(self.write.strobe & self.write.last),
            ends.source.payload.eq(write_pointer),
            ends.sink.ready.eq(read & reads_last),
            waiting.sink.ready.eq(read & reads_last),
        ]
        connect_streams(m, self.results, waiting.source)

        def after(value: Signal) -> Value:
            return Mux(value == self.depth - 1, 0, value + 1)

        with m.If(self.write.strobe):
            m.d.sync += write_pointer.eq(after(write_pointer))
        with m.If(self.enable):
            m.d.sync += self.valid.eq(read)
        with m.If(read):
            m.d.sync += [
                read_pointer.eq(after(read_pointer)),
                # The data is read one enabled cycle after the tag.
                data_pointer.eq(read_pointer),
                self.result.eq(waiting.sink.payload),
                self.last.eq(reads_last),
            ]
        if self.tag_shape is not None:
            self._hold(m, "tag", write_pointer, read_pointer)
        self._hold(m, "data", write_pointer, data_pointer)

        # Credits: a slice counts from its `take`, although it is written later.
        slices, rows = Signal(range(self.depth + 1)), Signal(range(self.rows + 1))
        m.d.comb += self.room.eq((slices != self.depth) & (rows != self.rows))
        # An entry is free after its data, not its tag, has been read.
        m.d.sync += [
            slices.eq(slices + self.take - (self.valid & self.enable)),
            rows.eq(rows + (self.take & self.take_last) - (read & reads_last)),
        ]
        return m

    def _hold(self, m: Module, name: str, write_pointer: Value, read_pointer: Value) -> None:
        """Instantiate the memory of the tags or of the data."""
        memory = Memory(shape=self.write[name].shape(), depth=self.depth, init=[])
        m.submodules[f"{name}_memory"] = memory
        write_port, read_port = memory.write_port(), memory.read_port()
        m.d.comb += [
            write_port.addr.eq(write_pointer),
            write_port.data.eq(self.write[name]),
            write_port.en.eq(self.write.strobe),
            read_port.addr.eq(read_pointer),
            read_port.en.eq(self.enable),
            getattr(self, name).eq(read_port.data),
        ]


def take_slices(m: Module, buffer: RowBuffer, source: stream.Interface) -> Value:
    """Take slices from a stream while there is room, and write their `values` immediately.

    Returns
    -------
    Value
        Whether a slice is taken in this cycle.
    """
    slices, take = source.payload, source.valid & buffer.room
    m.d.comb += [
        source.ready.eq(buffer.room),
        buffer.take.eq(take),
        buffer.take_last.eq(slices.last),
        buffer.write.strobe.eq(take),
        buffer.write.last.eq(slices.last),
        buffer.write.data.eq(slices["values"]),
    ]
    return take
