"""Double-buffered register file: one block is read while the next one is written."""

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class RegisterFile(Unit):
    """Two alternating banks, of which the full one can be read at any address.

    **Latency** a block is readable one cycle after its last word is written; a word is valid one
    cycle after its address. **Throughput** one word per cycle at input and output.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words of a bank: a power of two.

    Members
    -------
    source : In(stream)
        A `word` of a block of 1 to `depth` words; `last` with its last word.
    filled : Out(1)
        A block is readable.
    end : Out(address)
        Address of the last word of that block; valid with `filled`.
    read_enable, read_address : In
        Read a word of the block.
    read_data : Out(width)
        The most recently read word.
    release : In(1)
        Free the block; a read in this cycle is the last one of the block.

    Raises
    ------
    ValueError
        If a dimension is out of range.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        require_range("width", width, 1, 1 << 16)
        require_power_of_two("depth", depth, 2, 1 << 16)
        self.width, self.depth = width, depth
        address = range(depth)
        super().__init__(
            {
                "source": In(stream.Signature(data.StructLayout({"word": width, "last": 1}))),
                "filled": Out(1),
                "end": Out(address),
                "read_enable": In(1),
                "read_address": In(address),
                "read_data": Out(width),
                "release": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the bank that is written and the bank that is read."""
        m = Module()
        m.submodules.words = words = Memory(depth=2 * self.depth, width=self.width)
        bits = ceil_log2(self.depth)
        # The top bit of the address selects the bank.
        filling, reading, place = Signal(), Signal(), Signal(bits)
        full = [Signal(name=f"full_{bank}") for bank in range(2)]
        ends = [Signal(bits, name=f"end_{bank}", reset_less=True) for bank in range(2)]
        source = self.source
        arrives = source.valid & source.ready
        m.d.comb += [
            source.ready.eq(~Array(full)[filling]),
            words.write_enable.eq(arrives),
            words.write_address.eq(Cat(place, filling)),
            words.write_data.eq(Value.cast(source.payload.word)),
            self.filled.eq(Array(full)[reading]),
            self.end.eq(Array(ends)[reading]),
            words.read_enable.eq(self.read_enable),
            words.read_address.eq(Cat(self.read_address, reading)),
            self.read_data.eq(words.read_data),
        ]
        with m.If(arrives):
            m.d.sync += place.eq(place + 1)
            with m.If(source.payload.last):
                m.d.sync += [place.eq(0), filling.eq(~filling)]
        # The other bank is read next, whether or not it is full yet.
        with m.If(self.release):
            m.d.sync += reading.eq(~reading)
        for bank in range(2):
            # A bank is never filled and released in the same cycle.
            with m.If(self.release & (reading == bank)):
                m.d.sync += full[bank].eq(0)
            with m.If(arrives & source.payload.last & (filling == bank)):
                m.d.sync += [full[bank].eq(1), ends[bank].eq(place)]
        return m
