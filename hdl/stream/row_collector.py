"""From items that come one after the other to rows of them."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class RowCollector(Unit):
    """Collect a row of items, the first in the lowest place.

    **Latency** 1 cycle from a row's last item. **Throughput** one item a cycle, also from row to
    row.

    Parameters
    ----------
    width : int
        Bits of an item.
    items : int
        Of a row, 2 to 4096.

    Members
    -------
    items : In(stream)
        An `item`, and `last`, which may come with a row's last only.
    rows : Out(stream)
        Rows; `last` as of its last item.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, *, width: int, items: int) -> None:
        require_range("width", width, 1, 64)
        require_range("items", items, 2, 4096)
        self.number = items
        row = data.StructLayout({"item": width * items, "last": 1})
        super().__init__(
            {
                "items": In(stream.Signature(data.StructLayout({"item": width, "last": 1}))),
                "rows": Out(stream.Signature(row)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Shift a row in."""
        m = Module()
        row, item = self.rows.payload, self.items.payload
        held, last = Signal.like(Value.cast(row["item"]), reset_less=True), Signal(reset_less=True)
        count = Signal(range(self.number + 1))
        m.d.comb += [
            row["item"].eq(held),
            row.last.eq(last),
            self.rows.valid.eq(count == self.number),
            self.items.ready.eq(~self.rows.valid | self.rows.ready),
        ]
        taken = self.rows.valid & self.rows.ready
        with m.If(self.items.valid & self.items.ready):
            m.d.sync += [
                held.eq(Cat(held, item["item"])[len(item["item"]) :]),
                last.eq(item.last),
                count.eq(Mux(taken, 1, count + 1)),
            ]
        with m.Elif(taken):
            m.d.sync += count.eq(0)
        return m
