"""A FIFO of vectors in a memory: where they end is not stored with each item."""

from typing import Any

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import require_range
from hdl.unit import Unit


class VectorFifo(Unit):
    """Keep vectors of any length; their items leave once the last of them has come.

    **Latency** 3 cycles from a vector's last item to its first. **Throughput** one item a cycle
    unless full, also from vector to vector.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    longest : int
        Items of a vector at most.
    vectors : int
        Vectors that can wait; with `longest` items each, at most 2**20 items.

    Members
    -------
    source, sink : In, Out(stream)
        `value`, an item, and `last`, with a vector's last one. A vector's last item waits while as
        many vectors do as there is room for, but at least 2.

    Raises
    ------
    ValueError
        If a dimension is out of range.
    """

    def __init__(self, *, shape: ShapeLike, longest: int, vectors: int) -> None:
        require_range("longest", longest, 2, 1 << 20)
        require_range("vectors", vectors, 1, (1 << 20) // longest)
        self.shape, self.longest, self.vectors = shape, longest, vectors
        item = data.StructLayout({"value": shape, "last": 1})
        super().__init__(
            {"source": In(stream.Signature(item)), "sink": Out(stream.Signature(item))}
        )

    def elaborate(self, platform: Any) -> Module:
        """Count what comes in; count down what goes out."""
        m = Module()
        width = Shape.cast(self.shape).width
        # How many items there are beside the first; a memory has at least two words.
        m.submodules.items = items = MemoryFifo(shape=width, depth=self.longest * self.vectors)
        m.submodules.lengths = lengths = MemoryFifo(
            shape=Shape.cast(range(self.longest)), depth=max(self.vectors, 2)
        )
        source, sink = self.source, self.sink
        count, arrives = Signal(range(self.longest)), Signal()
        m.d.comb += [
            source.ready.eq(items.source.ready & (lengths.source.ready | ~source.payload.last)),
            arrives.eq(source.valid & source.ready),
            items.source.valid.eq(arrives),
            items.source.payload.eq(Value.cast(source.payload.value)),
            lengths.source.valid.eq(arrives & source.payload.last),
            lengths.source.payload.eq(count),
        ]
        with m.If(arrives):
            m.d.sync += count.eq(Mux(source.payload.last, 0, count + 1))

        # Whether the item offered is the last is a register's business, but for the first item.
        left, first, ends = Signal(range(self.longest)), Signal(init=1), Signal()
        leaves = sink.valid & sink.ready
        m.d.comb += [
            sink.valid.eq(items.sink.valid & lengths.sink.valid),
            Value.cast(sink.payload.value).eq(items.sink.payload),
            sink.payload.last.eq(Mux(first, lengths.sink.payload == 0, ends)),
            items.sink.ready.eq(leaves),
            lengths.sink.ready.eq(leaves & sink.payload.last),
        ]
        behind = Mux(first, lengths.sink.payload, left) - 1
        with m.If(leaves):
            m.d.sync += [
                first.eq(sink.payload.last),
                left.eq(behind),
                ends.eq(behind == 0),
            ]
        return m
