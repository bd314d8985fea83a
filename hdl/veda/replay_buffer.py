"""A buffer whose items are read again and again, until its reader releases them."""

from typing import Any

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import require_range
from hdl.stream.memory import Memory
from hdl.unit import Unit


class ReplayBuffer(Unit):
    """Keep the items of one vector, and offer them in their order, round after round.

    The first round follows the items as they come; none needs to wait for the last. New items come
    in once the vector is released.

    **Latency** 2 cycles. **Throughput** one item a cycle, also from round to round.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Items of a vector at most, 2 to 2**20.

    Members
    -------
    source : In(stream)
        The `item`, and `last` with a vector's last.
    sink : Out(stream)
        An item; from the memory's output, never from `source`.
    release : In(1)
        The item that the sink hands over is the last that is wanted; it must be a vector's last.

    Raises
    ------
    ValueError
        If the depth is out of range.
    """

    def __init__(self, *, shape: ShapeLike, depth: int) -> None:
        require_range("depth", depth, 2, 1 << 20)
        self.shape = shape
        self.depth = depth
        super().__init__(
            {
                "source": In(stream.Signature(data.StructLayout({"item": shape, "last": 1}))),
                "sink": Out(stream.Signature(shape)),
                "release": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Write behind the last item, read as far as there is one, and begin again."""
        m = Module()
        m.submodules.items = items = Memory(depth=self.depth, width=Shape.cast(self.shape).width)
        written, place = Signal(range(self.depth + 1)), Signal(ceil_log2(self.depth))
        complete = Signal()
        arrives, leaves, released = Signal(), Signal(), Signal()
        m.d.comb += [
            self.source.ready.eq(~complete),
            arrives.eq(self.source.valid & self.source.ready),
            released.eq(self.sink.valid & self.sink.ready & self.release),
            leaves.eq((place != written) & (~self.sink.valid | self.sink.ready) & ~released),
            items.write_enable.eq(arrives),
            items.write_address.eq(written),
            items.write_data.eq(Value.cast(self.source.payload["item"])),
            items.read_enable.eq(leaves),
            items.read_address.eq(place),
            Value.cast(self.sink.payload).eq(items.read_data),
        ]
        with m.If(arrives):
            m.d.sync += [written.eq(written + 1), complete.eq(self.source.payload.last)]
        with m.If(leaves | self.sink.ready):
            m.d.sync += self.sink.valid.eq(leaves)
        with m.If(leaves):
            m.d.sync += place.eq(Mux(complete & (place + 1 == written), 0, place + 1))
        with m.If(released):
            m.d.sync += [written.eq(0), complete.eq(0), place.eq(0)]
        return m
