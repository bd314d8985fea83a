"""FIFO in registers with combinational fall-through."""

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class Fifo(Unit):
    """A FIFO in registers whose output shows an incoming item in the same cycle.

    An item that the consumer accepts in the cycle of its arrival is never stored.

    **Latency** 0 cycles while empty. **Throughput** one item per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Number of items that can be stored, 1 to 64.

    Members
    -------
    source : In(stream)
        Incoming items; ready unless `depth` items are stored.
    sink : Out(stream)
        The oldest item. The path from `source` is combinational.
    waiting : Out(range(depth + 1))
        Number of stored items.

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
        # The oldest entry is first; an attribute, so that proofs can use it.
        self.entries = [Signal(shape, name=f"entry_{i}", reset_less=True) for i in range(depth)]

    def elaborate(self, platform: object) -> Module:
        """Build a shift register whose first entry is the oldest item."""
        m = Module()
        entries = self.entries
        empty = self.waiting == 0
        writes = self.source.valid & self.source.ready
        reads = self.sink.valid & self.sink.ready
        m.d.comb += [
            self.source.ready.eq(self.waiting != self.depth),
            self.sink.valid.eq(self.source.valid | ~empty),
            self.sink.payload.eq(entries[0]),
        ]
        # Fall-through: an arriving item is the oldest if the FIFO is empty.
        with m.If(empty):
            m.d.comb += self.sink.payload.eq(self.source.payload)
        m.d.sync += self.waiting.eq(self.waiting + writes - reads)
        with m.If(reads):
            m.d.sync += [entries[i].eq(entries[i + 1]) for i in range(self.depth - 1)]
        for i, entry in enumerate(entries):
            # Append after the remaining items; an item that falls through is not stored.
            with m.If(writes & (self.waiting == i + reads)):
                m.d.sync += entry.eq(self.source.payload)
        return m
