"""A reader of a vector's slices from a memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class SliceReader(Unit):
    """Read consecutive places; the memory's word is valid with the stream's item.

    **Latency** 2 cycles from `start`. **Throughput** one slice per cycle.

    Parameters
    ----------
    address_bits, count_bits : int
        Bits of a place, and of a slice count.

    Members
    -------
    start : In(1)
        Read `count` slices, starting at `first`; not while slices are in flight.
    first, count : In
        First place, and number of slices.
    hold : In(1)
        The next place is not written yet.
    read_enable, read_address : Out
        Read port of the memory, which holds its word until the next read.
    slices : Out(stream)
        For the word at the memory's output: `low`, the lowest bit of its place, and `last`.
    """

    def __init__(self, *, address_bits: int, count_bits: int) -> None:
        shown = data.StructLayout({"low": 1, "last": 1})
        super().__init__(
            {
                "start": In(1),
                "first": In(address_bits),
                "count": In(count_bits),
                "hold": In(1),
                "read_enable": Out(1),
                "read_address": Out(address_bits),
                "slices": Out(stream.Signature(shown)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the next slice when the current one is transferred."""
        m = Module()
        left, address = Signal.like(self.count), Signal.like(self.first)
        slices = self.slices
        # The memory holds its word until the next read, so that the stream may stall.
        move = ~slices.valid | slices.ready
        reads = (left != 0) & ~self.hold
        m.d.comb += [self.read_enable.eq(move & reads), self.read_address.eq(address)]
        with m.If(move):
            m.d.sync += slices.valid.eq(reads)
        with m.If(move & reads):
            m.d.sync += [
                slices.payload.low.eq(address[0]),
                slices.payload.last.eq(left == 1),
                left.eq(left - 1),
                address.eq(address + 1),
            ]
        # A start arrives when no slices are left, and overrides the update.
        with m.If(self.start):
            m.d.sync += [left.eq(self.count), address.eq(self.first)]
        return m
