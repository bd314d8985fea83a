"""Serialisation of groups into items."""

from amaranth.hdl import Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Serialiser(Unit):
    """Accept a group of items and output them one by one; the item with index 0 is first.

    **Latency** 1 cycle. **Throughput** one item per cycle, also across groups.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    items : int
        Number of items per group, 2 to 4096.
    tag_shape : ShapeLike
        Shape of a tag common to all items of a group; hashable.

    Members
    -------
    groups : In(stream)
        The `items` of a group, and their `tag`; `last` with the last group.
    items : Out(stream)
        An `item`, its group's `tag`, and `last` with the last item of the last group.

    Raises
    ------
    ValueError
        If the number of items is out of range.
    """

    def __init__(self, *, shape: ShapeLike, items: int, tag_shape: ShapeLike = 0) -> None:
        require_range("items", items, 2, 4096)
        self.shape, self.number, self.tag_shape = shape, items, tag_shape
        marks = {"tag": tag_shape, "last": 1}
        group = data.StructLayout({"items": data.ArrayLayout(shape, items), **marks})
        item = data.StructLayout({"item": shape, **marks})
        super().__init__(
            {"groups": In(stream.Signature(group)), "items": Out(stream.Signature(item))}
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the items of a group out."""
        m = Module()
        group, item = self.groups.payload, self.items.payload
        width = Shape.cast(self.shape).width
        held = Signal(width * self.number, reset_less=True)
        tag, last = Signal(self.tag_shape, reset_less=True), Signal(reset_less=True)
        left = Signal(range(self.number + 1))
        ends = Signal()
        m.d.comb += [
            self.items.valid.eq(left != 0),
            Value.cast(item["item"]).eq(held[:width]),
            ends.eq(left == 1),
            item.tag.eq(tag),
            item.last.eq(last & ends),
            # The next group is accepted in the cycle that transfers the last item.
            self.groups.ready.eq((left == 0) | (ends & self.items.ready)),
        ]
        with m.If(self.items.valid & self.items.ready):
            m.d.sync += [held.eq(held >> width), left.eq(left - 1)]
        with m.If(self.groups.valid & self.groups.ready):
            m.d.sync += [
                held.eq(Value.cast(group["items"])),
                tag.eq(group.tag),
                last.eq(group.last),
                left.eq(self.number),
            ]
        return m
