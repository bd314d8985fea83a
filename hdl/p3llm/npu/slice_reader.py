"""Slices of a vector out of a memory, one behind the other."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class SliceReader(Unit):
    """Read places one behind the other; the memory's word accompanies the stream.

    **Latency** 2 cycles from `start`. **Throughput** one slice per cycle.

    Parameters
    ----------
    address_bits, count_bits : int
        Bits of a place, and of a number of slices.

    Members
    -------
    start : In(1)
        Read `count` slices from `first` on; not while some are under way.
    first, count : In
        The places.
    hold : In(1)
        The next place has nothing to read yet.
    read_enable, read_address : Out
        To the memory, whose word keeps until the next read.
    slices : Out(stream)
        Of the word in the memory's output: its place's lowest bit, and whether it is the last.
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

    def elaborate(self, platform: Any) -> Module:
        """Read the next one whenever the one before is taken."""
        m = Module()
        left, address = Signal.like(self.count), Signal.like(self.first)
        slices = self.slices
        # The memory keeps its word until the next read, so that the stream may stand.
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
        # A start comes when nothing is left, and wins over what moves.
        with m.If(self.start):
            m.d.sync += [left.eq(self.count), address.eq(self.first)]
        return m
