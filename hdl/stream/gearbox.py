"""Stream width converter with any ratio of widths."""

from math import gcd

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Gearbox(Unit):
    """Repack the items of a packet into transfers of another width; the first item has index 0.

    All transfers but the last one of a packet are full. No transfer contains items of two packets.

    **Latency** 1 cycle from the item that completes a transfer. **Throughput** one transfer per
    cycle on the narrower side, also across packets.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    items_in, items_out : int
        Number of items per transfer at input and output, 1 to 256 each.

    Members
    -------
    source : In(stream)
        `items`. With `last`, the end of a packet, `count` is the number of valid items, 0 or more;
        without `last`, all items are valid.
    sink : Out(stream)
        `items`, `last`, and the number of valid items in `count`. The count is 0 for an empty
        packet, and for a packet whose end arrives without items after all its full transfers were
        output.

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

    def elaborate(self, platform: object) -> Module:
        """Append arriving items above the stored ones; output from the bottom."""
        m = Module()
        source, sink = self.source, self.sink
        taken, width = source.payload, Shape.cast(self.shape).width
        # Fill levels within a packet are multiples of the greatest common divisor of both widths.
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

        transfers = Signal()
        remaining, level_below = Signal.like(held), Signal.like(level)
        m.d.comb += [
            transfers.eq(sink.valid & sink.ready),
            remaining.eq(Mux(transfers, held >> self.items_out * width, held)),
            level_below.eq(level - Mux(transfers, sink.payload.count, 0)),
            # A packet waits until the previous one has been output completely.
            source.ready.eq(
                Mux(closing, final & transfers, level_below <= capacity - self.items_in)
            ),
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
        with m.Elif(transfers & final):
            m.d.sync += closing.eq(0)
        return m
