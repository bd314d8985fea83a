"""Collection of items into groups."""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Collector(Unit):
    """Collect a group of items; the first item has index 0.

    **Latency** 1 cycle from a group's last item. **Throughput** one item per cycle, also across
    groups; without `overlap`, the first item of a group waits until the previous group is
    transferred.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    items : int
        Number of items per group, 2 to 4096.
    overlap : bool
        Accept an item in the cycle that transfers a group. Without it, `ready` of `items` depends
        on registers only.

    Members
    -------
    items : In(stream)
        An `item`, and `last`, which may be set only with the last item of a group.
    groups : Out(stream)
        The `items` of a group, and `last` of its last item.

    Raises
    ------
    ValueError
        If the number of items is out of range.
    """

    def __init__(self, *, shape: ShapeLike, items: int, overlap: bool = True) -> None:
        require_range("items", items, 2, 4096)
        self.shape, self.number, self.overlap = shape, items, overlap
        group = data.StructLayout({"items": data.ArrayLayout(shape, items), "last": 1})
        super().__init__(
            {
                "items": In(stream.Signature(data.StructLayout({"item": shape, "last": 1}))),
                "groups": Out(stream.Signature(group)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the items of a group in."""
        m = Module()
        group, item = self.groups.payload, self.items.payload
        width = Shape.cast(self.shape).width
        held, last = Signal(width * self.number, reset_less=True), Signal(reset_less=True)
        count = Signal(range(self.number + 1))
        m.d.comb += [
            Value.cast(group["items"]).eq(held),
            group.last.eq(last),
            self.groups.valid.eq(count == self.number),
            self.items.ready.eq(~self.groups.valid | (self.groups.ready & self.overlap)),
        ]
        taken = self.groups.valid & self.groups.ready
        with m.If(self.items.valid & self.items.ready):
            m.d.sync += [
                held.eq(Cat(held, Value.cast(item["item"]))[width:]),
                last.eq(item.last),
                # An item that is accepted while the group is transferred starts the next group.
                count.eq(Mux(taken, 1, count + 1)),
            ]
        with m.Elif(taken):
            m.d.sync += count.eq(0)
        return m
