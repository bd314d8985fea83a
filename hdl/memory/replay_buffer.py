"""A buffer whose items are read round after round, until its reader releases them."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class ReplayBuffer(Unit):
    """Keep the items of one vector, and offer them in their order, round after round.

    The first round follows the items as they come in, as long as they come in their order; else it
    begins when all are there. New items come in once the vector is released.

    **Latency** 2 cycles. **Throughput** one item a cycle, also from round to round.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Items of a vector at most, 2 to 2**20.
    parts : int
        Parts in which an item comes in, the lowest first: 1 to 8, a power of two.
    placed : bool
        Whether each part says where it belongs.
    follows : bool
        Whether the first round may begin before the last item is there.

    Members
    -------
    source : In(stream)
        A part of an `item`; its `place`, if they are `placed`, in parts from the vector's first
        on; and `last` with the last that comes.
    sink : Out(stream)
        An item; from the memory's output, never from `source`.
    release : In(1)
        The item that the sink hands over is the last that is wanted; it must be a vector's last.

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

    def elaborate(self, platform: Any) -> Module:
        """Write what comes, read as far as there is something, and begin again."""
        m = Module()
        source, sink = self.source.payload, self.sink
        width = Shape.cast(self.shape).width // self.parts
        banks = [Memory(depth=self.depth, width=width) for _ in range(self.parts)]
        # Parts that have come in, and the item to read next.
        written, place = Signal(range(self.depth * self.parts + 1)), Signal(ceil_log2(self.depth))
        complete, in_order = Signal(), Signal(init=1)
        arrives, leaves, released = Signal(), Signal(), Signal()
        part_bits = ceil_log2(self.parts)
        # An item's parts lie side by side, one bank each.
        to, whole = source.place if self.placed else written, written[part_bits:]
        m.d.comb += [
            self.source.ready.eq(~complete),
            arrives.eq(self.source.valid & self.source.ready),
            released.eq(sink.valid & sink.ready & self.release),
            leaves.eq(
                # Read what is there: all of it, or in the first round as far as it came in order.
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
                bank.write_enable.eq(arrives & (to[:part_bits] == part)),
                bank.write_address.eq(to[part_bits:]),
                bank.write_data.eq(Value.cast(source["item"])),
                bank.read_enable.eq(leaves),
                bank.read_address.eq(place),
            ]
        # What comes out of its order may leave a gap before it: then the round waits for the last.
        with m.If(arrives):
            m.d.sync += [
                written.eq(written + 1),
                complete.eq(source.last),
                in_order.eq(in_order & (to == written)),
            ]
        # The memory's output is the sink's payload: it stands until the next read.
        with m.If(leaves | sink.ready):
            m.d.sync += sink.valid.eq(leaves)
        with m.If(leaves):
            m.d.sync += place.eq(Mux(complete & (place + 1 == whole), 0, place + 1))
        # Forget the vector; its last round has been read to the end.
        with m.If(released):
            m.d.sync += [written.eq(0), complete.eq(0), in_order.eq(1), place.eq(0)]
        return m
