"""Conversion between single items and transfers of several lanes, per step."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


def item_layout(shape: ShapeLike) -> data.StructLayout:
    """Return the payload of a stream of single items."""
    return data.StructLayout({"item": shape, "last": 1})


def lanes_layout(shape: ShapeLike, lanes: int) -> data.StructLayout:
    """Return the payload of a stream of several items per transfer."""
    return data.StructLayout({"lanes": data.ArrayLayout(shape, lanes), "present": lanes, "last": 1})


class LaneCollector(Unit):
    """Group items into lanes; the last transfer of a step can be incomplete.

    **Latency** 1 cycle from a transfer's last item. **Throughput** one item per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item.
    lanes : int
        Items of a full transfer.

    Members
    -------
    items : In(stream)
        An `item`, and `last` with the last item of a step.
    transfers : Out(stream)
        The items in `lanes`, a mask of the lanes that are `present`, and `last` of the step.
    """

    def __init__(self, *, shape: ShapeLike, lanes: int) -> None:
        self.shape, self.number = shape, lanes
        super().__init__(
            {
                "items": In(stream.Signature(item_layout(shape))),
                "transfers": Out(stream.Signature(lanes_layout(shape, lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fill the lanes in ascending order."""
        m = Module()
        transfers, items = self.transfers, self.items
        count, place = Signal(range(self.number + 1)), Signal(range(self.number))
        held = [Signal(self.shape, name=f"held_{i}", reset_less=True) for i in range(self.number)]
        last = Signal()
        leaves, comes = transfers.valid & transfers.ready, items.valid & items.ready
        m.d.comb += [
            transfers.valid.eq((count == self.number) | last),
            transfers.payload.last.eq(last),
            transfers.payload.present.eq(Cat(count > lane for lane in range(self.number))),
            items.ready.eq(~transfers.valid | transfers.ready),
            # An item that is accepted while a transfer is output is the first of the next transfer.
            place.eq(Mux(leaves, 0, count)),
        ]
        m.d.comb += [transfers.payload.lanes[i].eq(one) for i, one in enumerate(held)]
        # Lanes that are not `present` keep old values.
        with m.If(comes):
            m.d.sync += [count.eq(place + 1), last.eq(items.payload.last)]
            for lane, one in enumerate(held):
                with m.If(place == lane):
                    m.d.sync += one.eq(items.payload["item"])
        with m.Elif(leaves):
            m.d.sync += [count.eq(0), last.eq(0)]
        return m


class LaneSpreader(Unit):
    """Output the items of each transfer one by one, the lowest lane first.

    **Latency** 0 cycles. **Throughput** one item per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item.
    lanes : int
        Items of a full transfer.

    Members
    -------
    transfers : In(stream)
        The items in `lanes`; a mask of those `present`, the lowest lane always; `last` of the step.
    items : Out(stream)
        An `item`, and `last` with the last item of a step.
    """

    def __init__(self, *, shape: ShapeLike, lanes: int) -> None:
        self.shape, self.number = shape, lanes
        super().__init__(
            {
                "transfers": In(stream.Signature(lanes_layout(shape, lanes))),
                "items": Out(stream.Signature(item_layout(shape))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count through the lanes that are present."""
        m = Module()
        transfers, items = self.transfers, self.items
        lane, ends = Signal(range(self.number)), Signal()
        m.d.comb += [
            # Present lanes are the lower ones: the last one has none above it.
            ends.eq(~Cat(transfers.payload.present[1:], Const(0, 1)).bit_select(lane, 1)),
            items.valid.eq(transfers.valid),
            transfers.ready.eq(items.ready & ends),
            items.payload["item"].eq(transfers.payload.lanes[lane]),
            items.payload.last.eq(transfers.payload.last & ends),
        ]
        with m.If(items.valid & items.ready):
            m.d.sync += lane.eq(Mux(ends, 0, lane + 1))
        return m
