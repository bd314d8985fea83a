"""FIFO of vectors in a memory; stores one length per vector instead of a flag per item."""

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import require_range
from hdl.unit import Unit


class VectorFifo(Unit):
    """Store vectors of any length; output a vector after its last item has been written.

    **Latency** 3 cycles from a vector's last item in to its first item out. **Throughput** one item
    per cycle unless full, also across vectors.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    longest : int
        Maximum number of items of a vector.
    vectors : int
        Number of vectors that can be stored; with `longest` items each, at most 2**20 items.

    Members
    -------
    source, sink : In, Out(stream)
        `value`, an item; `last` with the last item of a vector. The last item of a vector is not
        accepted while `vectors` vectors (at least 2) are stored.

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

    def elaborate(self, platform: object) -> Module:
        """Count the items of a vector in; count them down at the output."""
        m = Module()
        width = Shape.cast(self.shape).width
        # Lengths are stored minus one; a memory has at least two words.
        m.submodules.items = items = MemoryFifo(shape=width, depth=self.longest * self.vectors)
        m.submodules.lengths = lengths = MemoryFifo(
            shape=Shape.cast(range(self.longest)), depth=max(self.vectors, 2)
        )
        source, sink = self.source, self.sink
        count, writes = Signal(range(self.longest)), Signal()
        m.d.comb += [
            source.ready.eq(items.source.ready & (lengths.source.ready | ~source.payload.last)),
            writes.eq(source.valid & source.ready),
            items.source.valid.eq(writes),
            items.source.payload.eq(Value.cast(source.payload.value)),
            lengths.source.valid.eq(writes & source.payload.last),
            lengths.source.payload.eq(count),
        ]
        with m.If(writes):
            m.d.sync += count.eq(Mux(source.payload.last, 0, count + 1))

        # A register marks the last item, except for the first item of a vector.
        left, first, ends = Signal(range(self.longest)), Signal(init=1), Signal()
        reads = sink.valid & sink.ready
        m.d.comb += [
            sink.valid.eq(items.sink.valid & lengths.sink.valid),
            Value.cast(sink.payload.value).eq(items.sink.payload),
            sink.payload.last.eq(Mux(first, lengths.sink.payload == 0, ends)),
            items.sink.ready.eq(reads),
            lengths.sink.ready.eq(reads & sink.payload.last),
        ]
        remaining = Mux(first, lengths.sink.payload, left) - 1
        with m.If(reads):
            m.d.sync += [
                first.eq(sink.payload.last),
                left.eq(remaining),
                ends.eq(remaining == 0),
            ]
        return m
