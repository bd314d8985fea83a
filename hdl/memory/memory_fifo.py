"""FIFO that stores its items in a memory."""

from amaranth.hdl import Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.parameters import require_range
from hdl.unit import Unit


class MemoryFifo(Unit):
    """A FIFO for many items: a ring buffer in a memory whose output register is the FIFO's output.

    **Latency** 2 cycles. **Throughput** one item per cycle unless full.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Number of items in the memory, 2 to 2**20; the memory's output holds one more.

    Members
    -------
    source : In(stream)
        Incoming items.
    sink : Out(stream)
        The oldest item, driven by the memory's output; there is no path from `source`.

    Raises
    ------
    ValueError
        If the depth is out of range.
    """

    def __init__(self, *, shape: ShapeLike, depth: int) -> None:
        require_range("depth", depth, 2, 1 << 20)
        self.shape = shape
        self.depth = depth
        super().__init__(
            {"source": In(stream.Signature(shape)), "sink": Out(stream.Signature(shape))}
        )

    def elaborate(self, platform: object) -> Module:
        """Write at one pointer; read at the other when the output is free."""
        m = Module()
        width = Shape.cast(self.shape).width
        m.submodules.ring = ring = Memory(depth=self.depth, width=width)
        writes, reads = Signal(), Signal()
        wrap_bits = []
        for address, advances in ((ring.write_address, writes), (ring.read_address, reads)):
            # The wrap bit toggles with each wrap; the write pointer is at most one wrap ahead.
            pointer, wrap_bit = Signal.like(address), Signal()
            m.d.comb += address.eq(pointer)
            with m.If(advances):
                m.d.sync += pointer.eq(pointer + 1)
                with m.If(pointer == self.depth - 1):
                    m.d.sync += [pointer.eq(0), wrap_bit.eq(~wrap_bit)]
            wrap_bits.append(wrap_bit)
        # Equal pointers mean full if the write pointer is one wrap ahead, and empty otherwise.
        equal, ahead, full = Signal(), Signal(), Signal()
        m.d.comb += [
            equal.eq(ring.write_address == ring.read_address),
            ahead.eq(wrap_bits[0] ^ wrap_bits[1]),
            full.eq(equal & ahead),
            self.source.ready.eq(~full),
            writes.eq(self.source.valid & self.source.ready),
            reads.eq((~equal | ahead) & (~self.sink.valid | self.sink.ready)),
            ring.write_enable.eq(writes),
            ring.write_data.eq(Value.cast(self.source.payload)),
            ring.read_enable.eq(reads),
            Value.cast(self.sink.payload).eq(ring.read_data),
        ]
        # The memory's output is the FIFO's output: it is stable until the next read.
        with m.If(reads | self.sink.ready):
            m.d.sync += self.sink.valid.eq(reads)
        return m
