"""Serialisation of groups into items by selection, for FPGAs."""

from amaranth.hdl import Array, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class SelectingSerialiser(Unit):
    """A `Serialiser` that selects each item of a group, which it does not shift.

    A shift register has a multiplexer of two inputs for each bit of a group. The selection has one
    multiplexer of `items` inputs for each bit of an item, which takes a third of a lookup table of
    six inputs for each bit of a group.

    **Latency** 1 cycle. **Throughput** one item per cycle, also across groups.

    Parameters
    ----------
    shape, items
        As in `Serialiser`.

    Members
    -------
    groups, items
        As in `Serialiser`, without tag.

    Raises
    ------
    ValueError
        If the number of items is out of range.
    """

    def __init__(self, *, shape: ShapeLike, items: int) -> None:
        require_range("items", items, 2, 4096)
        self.shape, self.number = shape, items
        group = data.StructLayout({"items": data.ArrayLayout(shape, items), "last": 1})
        item = data.StructLayout({"item": shape, "last": 1})
        super().__init__(
            {"groups": In(stream.Signature(group)), "items": Out(stream.Signature(item))}
        )

    def elaborate(self, platform: object) -> Module:
        """Hold a group; count its items."""
        m = Module()
        group, item = self.groups.payload, self.items.payload
        held, last = Signal.like(group["items"], reset_less=True), Signal(reset_less=True)
        place, ends = Signal(range(self.number)), Signal()
        m.d.comb += [
            Value.cast(item["item"]).eq(Array(Value.cast(one) for one in held)[place]),
            ends.eq(place == self.number - 1),
            item.last.eq(last & ends),
            # The next group is accepted in the cycle that transfers the last item.
            self.groups.ready.eq(~self.items.valid | (ends & self.items.ready)),
        ]
        with m.If(self.items.valid & self.items.ready):
            m.d.sync += place.eq(Mux(ends, 0, place + 1))
            with m.If(ends):
                m.d.sync += self.items.valid.eq(0)
        with m.If(self.groups.valid & self.groups.ready):
            m.d.sync += [
                held.eq(group["items"]),
                last.eq(group.last),
                self.items.valid.eq(1),
            ]
        return m
