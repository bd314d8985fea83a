"""From transfers of some items to transfers of more or fewer: a width converter of any ratio."""

from math import gcd
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Gearbox(Unit):
    """Pack the items of a packet into transfers of another width, the first in the lowest place.

    All transfers but a packet's last are full. No transfer has items of two packets.

    **Latency** 1 cycle from the item that completes a transfer. **Throughput** one transfer a cycle
    on the narrower side, also from packet to packet.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    items_in, items_out : int
        Items of a transfer on either side, 1 to 256 each.

    Members
    -------
    source : In(stream)
        `items`; and with `last`, the packet's end, the `count` of them that are there, from 0 on.
        Without `last` all are.
    sink : Out(stream)
        `items`, `last`, and the `count` of items that are there. It is 0 in an empty packet, and
        behind full transfers if the packet's end came alone and late.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, shape: ShapeLike, items_in: int, items_out: int) -> None:
        require_range("items_in", items_in, 1, 256)
        require_range("items_out", items_out, 1, 256)
        self.shape, self.items_in, self.items_out = shape, items_in, items_out
        super().__init__(
            {
                "source": In(stream.Signature(self._layout(shape, items_in))),
                "sink": Out(stream.Signature(self._layout(shape, items_out))),
            }
        )

    @staticmethod
    def _layout(shape: ShapeLike, items: int) -> data.StructLayout:
        return data.StructLayout(
            {"items": data.ArrayLayout(shape, items), "count": range(items + 1), "last": 1}
        )

    def elaborate(self, platform: Any) -> Module:
        """Put what comes on top of what is there; take from below."""
        m = Module()
        source, sink = self.source, self.sink
        taken, width = source.payload, Shape.cast(self.shape).width
        # Levels within a packet are multiples of what both widths have in common.
        step = gcd(self.items_in, self.items_out)
        capacity = self.items_in + self.items_out - step
        held = Signal(capacity * width, reset_less=True)
        level, closing = Signal(range(capacity + 1)), Signal()

        final = closing & (level <= self.items_out)
        m.d.comb += [
            sink.valid.eq(final | (level >= self.items_out)),
            Value.cast(sink.payload["items"]).eq(held[: self.items_out * width]),
            sink.payload.count.eq(Mux(final, level, self.items_out)),
            sink.payload.last.eq(final),
        ]

        leaves = Signal()
        remaining, level_below = Signal.like(held), Signal.like(level)
        m.d.comb += [
            leaves.eq(sink.valid & sink.ready),
            remaining.eq(Mux(leaves, held >> self.items_out * width, held)),
            level_below.eq(level - Mux(leaves, sink.payload.count, 0)),
            # A packet waits until nothing is left of the one before.
            source.ready.eq(Mux(closing, final & leaves, level_below <= capacity - self.items_in)),
        ]
        m.d.sync += [held.eq(remaining), level.eq(level_below)]
        with m.If(source.valid & source.ready):
            m.d.sync += [
                closing.eq(taken.last),
                level.eq(level_below + Mux(taken.last, taken.count, self.items_in)),
            ]
            with m.Switch(level_below):
                for below in range(0, capacity - self.items_in + 1, step):
                    with m.Case(below):
                        m.d.sync += held.eq(
                            Cat(remaining[: below * width], Value.cast(taken["items"]))
                        )
        with m.Elif(leaves & final):
            m.d.sync += closing.eq(0)
        return m
