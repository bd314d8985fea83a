"""A FIFO in registers that costs no cycle while nothing waits."""

from typing import Any

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Fifo(Unit):
    """A FIFO in registers whose output shows an incoming value in the same cycle.

    An item that the consumer takes in the cycle in which it arrives is never stored.

    **Latency** 0 cycles while empty. **Throughput** one item a cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Items that can wait, 1 to 64.

    Members
    -------
    source : In(stream)
        Items to keep; ready unless `depth` items wait.
    sink : Out(stream)
        The oldest item. The path from `source` is combinational.
    waiting : Out(range(depth + 1))
        Items that wait.

    Raises
    ------
    ValueError
        If the depth is out of range.
    """

    def __init__(self, *, shape: ShapeLike, depth: int) -> None:
        require_range("depth", depth, 1, 64)
        self.shape = shape
        self.depth = depth
        super().__init__(
            {
                "source": In(stream.Signature(shape)),
                "sink": Out(stream.Signature(shape)),
                "waiting": Out(range(depth + 1)),
            }
        )
        # The oldest first; here, where a proof can name them.
        self.entries = [Signal(shape, name=f"entry_{i}", reset_less=True) for i in range(depth)]

    def elaborate(self, platform: Any) -> Module:
        """Build a shift register whose first entry is the oldest item."""
        m = Module()
        entries = self.entries
        empty = self.waiting == 0
        arrives = self.source.valid & self.source.ready
        leaves = self.sink.valid & self.sink.ready
        m.d.comb += [
            self.source.ready.eq(self.waiting != self.depth),
            self.sink.valid.eq(self.source.valid | ~empty),
            self.sink.payload.eq(entries[0]),
        ]
        # Fall-through: what arrives is the oldest item.
        with m.If(empty):
            m.d.comb += self.sink.payload.eq(self.source.payload)
        m.d.sync += self.waiting.eq(self.waiting + arrives - leaves)
        with m.If(leaves):
            m.d.sync += [entries[i].eq(entries[i + 1]) for i in range(self.depth - 1)]
        for i, entry in enumerate(entries):
            # Behind the last of those that stay; an item that leaves at once goes nowhere.
            with m.If(arrives & (self.waiting == i + leaves)):
                m.d.sync += entry.eq(self.source.payload)
        return m
