"""Buffer that outputs its items repeatedly until its reader releases them."""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class ReplayBuffer(Unit):
    """Store the items of one vector and output them in order, in repeated rounds.

    If the items are written in order, the first round follows the writes; otherwise it starts when
    the vector is complete. New items are accepted after the vector is released.

    **Latency** 2 cycles. **Throughput** one item per cycle, also across rounds.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Maximum number of items of a vector, 2 to 2**20.
    parts : int
        Number of parts per item, written lowest first: 1 to 8, a power of two.
    placed : bool
        Add the field `place` to `source`, the position of each part.
    follows : bool
        Allow the first round to start before the vector is complete.

    Members
    -------
    source : In(stream)
        A part of an `item`; its `place` if `placed`, counted in parts from the start of the vector;
        `last` with the last part written.
    sink : Out(stream)
        The items, driven by the memory's output; there is no path from `source`.
    release : In(1)
        The item transferred at `sink` is the last one needed; it must be the last of the vector.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(
        self,
        *,
        shape: ShapeLike,
        depth: int,
        parts: int = 1,
        placed: bool = False,
        follows: bool = True,
    ) -> None:
        require_range("depth", depth, 2, 1 << 20)
        require_power_of_two("parts", parts, 1, 8)
        self.shape = shape
        self.depth = depth
        self.parts = parts
        self.placed = placed
        self.follows = follows
        part = shape if parts == 1 else Shape.cast(shape).width // parts
        place = {"place": ceil_log2(depth * parts)} if placed else {}
        layout = data.StructLayout({"item": part, **place, "last": 1})
        super().__init__(
            {
                "source": In(stream.Signature(layout)),
                "sink": Out(stream.Signature(shape)),
                "release": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Write arriving parts, read available items, repeat."""
        m = Module()
        source, sink = self.source.payload, self.sink
        width = Shape.cast(self.shape).width // self.parts
        banks = [Memory(depth=self.depth, width=width) for _ in range(self.parts)]
        # Number of parts written, and the next item to read.
        written, place = Signal(range(self.depth * self.parts + 1)), Signal(ceil_log2(self.depth))
        complete, in_order = Signal(), Signal(init=1)
        writes, reads, released = Signal(), Signal(), Signal()
        part_bits = ceil_log2(self.parts)
        # The parts of an item are stored at one address, in one bank each.
        to, whole = source.place if self.placed else written, written[part_bits:]
        m.d.comb += [
            self.source.ready.eq(~complete),
            writes.eq(self.source.valid & self.source.ready),
            released.eq(sink.valid & sink.ready & self.release),
            reads.eq(
                # Read stored items: all of them, or in the first round those written in order.
                (place != whole)
                & (complete | (in_order & int(self.follows)))
                & (~sink.valid | sink.ready)
                & ~released
            ),
            Value.cast(sink.payload).eq(Cat(bank.read_data for bank in banks)),
        ]
        for part, bank in enumerate(banks):
            m.submodules[f"bank_{part}"] = bank
            m.d.comb += [
                bank.write_enable.eq(writes & (to[:part_bits] == part)),
                bank.write_address.eq(to[part_bits:]),
                bank.write_data.eq(Value.cast(source["item"])),
                bank.read_enable.eq(reads),
                bank.read_address.eq(place),
            ]
        # A part written out of order may leave a gap, so the first round then waits for the last
        # part.
        with m.If(writes):
            m.d.sync += [
                written.eq(written + 1),
                complete.eq(source.last),
                in_order.eq(in_order & (to == written)),
            ]
        # The memory's output is the sink's payload: it is stable until the next read.
        with m.If(reads | sink.ready):
            m.d.sync += sink.valid.eq(reads)
        with m.If(reads):
            m.d.sync += place.eq(Mux(complete & (place + 1 == whole), 0, place + 1))
        # Clear the state when the last round has ended.
        with m.If(released):
            m.d.sync += [written.eq(0), complete.eq(0), in_order.eq(1), place.eq(0)]
        return m
