"""Double buffer for blocks that are read several times: keys, values, weights, biases."""

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.parameters import require_range
from hdl.unit import Unit


class BlockBuffer(Unit):
    """Double buffer whose blocks are read by passes, each of which starts at the first word.

    One bank is filled with a block while passes read the block of the other bank. A pass may read
    a block before the block is complete; it then waits for each word that has not arrived.

    **Latency** 2 cycles. **Throughput** one word per cycle at input and output, including from pass
    to pass and from block to block.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Maximum words per block, 2 to 2**19.

    Members
    -------
    source : In(stream)
        A `word` of a block; `last` with its last word.
    passes : In(stream)
        A pass over the first `length` words, 1 to the length of the block; `release` frees the
        block after the pass.
    sink : Out(stream)
        A `word` of a pass; `last` with its last word. The memory's output, never `source` directly.

    Raises
    ------
    ValueError
        If a dimension is out of range.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        require_range("depth", depth, 2, 1 << 19)
        self.width, self.depth = width, depth
        block = data.StructLayout({"word": width, "last": 1})
        self.passes_layout = data.StructLayout({"length": range(depth + 1), "release": 1})
        super().__init__(
            {
                "source": In(stream.Signature(block)),
                "passes": In(stream.Signature(self.passes_layout)),
                "sink": Out(stream.Signature(block)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Write to one bank and read from the other."""
        m = Module()
        m.submodules.words = words = Memory(depth=2 * self.depth, width=self.width)
        # Two banks share one memory; the upper one begins at `depth`, which may be any number.
        filling, reading = Signal(), Signal()
        place, index = Signal(range(self.depth + 1)), Signal(range(self.depth + 1))
        full = [Signal(name=f"full_{bank}") for bank in range(2)]
        source, passes, sink = self.source, self.passes, self.sink
        arrives = source.valid & source.ready
        there, leaves, ends, released = Signal(), Signal(), Signal(), Signal()
        whole = Array(full)[reading]
        m.d.comb += [
            source.ready.eq(~Array(full)[filling]),
            words.write_enable.eq(arrives),
            words.write_address.eq(place + Array([0, self.depth])[filling]),
            words.write_data.eq(Value.cast(source.payload.word)),
            ends.eq(index + 1 == passes.payload.length),
            # An incomplete block is readable up to its newest word.
            there.eq(whole | (index < place)),
            leaves.eq(passes.valid & there & (~sink.valid | sink.ready)),
            passes.ready.eq(leaves & ends),
            # The last read frees the bank, since the next write happens one cycle later.
            released.eq(leaves & ends & passes.payload.release),
            words.read_enable.eq(leaves),
            words.read_address.eq(index + Array([0, self.depth])[reading]),
            sink.payload.word.eq(words.read_data),
        ]
        with m.If(arrives):
            m.d.sync += place.eq(place + 1)
            with m.If(source.payload.last):
                m.d.sync += [place.eq(0), filling.eq(~filling)]
        # The memory's output is the payload of the stream: it is stable until the next read.
        with m.If(leaves | sink.ready):
            m.d.sync += sink.valid.eq(leaves)
        with m.If(leaves):
            m.d.sync += [index.eq(index + 1), sink.payload.last.eq(ends)]
            with m.If(ends):
                m.d.sync += index.eq(0)
        with m.If(released):
            m.d.sync += reading.eq(~reading)
        for bank in range(2):
            with m.If(released & (reading == bank)):
                m.d.sync += full[bank].eq(0)
            with m.If(arrives & source.payload.last & (filling == bank)):
                m.d.sync += full[bank].eq(1)
        return m
