"""Positions out of groups of active lanes, one a cycle."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class PositionDrain(Unit):
    """Give the active lanes of each entry as positions, the lowest first.

    **Latency** 0 cycles. **Throughput** one position a cycle, also from entry to entry.

    Parameters
    ----------
    lanes : int
        Lanes of an entry.
    entry, position : StructLayout
        Payloads of the streams.

    Members
    -------
    entries : In(stream)
        `base`, `active` lanes, at least one, and `last`; of what else there is of each lane, as
        `modes`, all lanes; `recent` lanes, and whether the first of those `graduates`.
    positions : Out(stream)
        `position`, of the lane what an entry has of all, as `mode`; `recent`, `graduates`, and
        `last` with the last lane of a last entry.
    """

    def __init__(
        self, *, lanes: int, entry: data.StructLayout, position: data.StructLayout
    ) -> None:
        self.lanes = lanes
        self.entry, self.position = entry, position
        super().__init__(
            {"entries": In(stream.Signature(entry)), "positions": Out(stream.Signature(position))}
        )

    def elaborate(self, platform: Any) -> Module:
        """Give the lowest lane that was not given yet."""
        m = Module()
        entry, position = self.entries.payload, self.positions.payload
        given, left, lowest = (Signal(self.lanes, name=name) for name in ("given", "left", "low"))
        lane, ends = Signal(range(self.lanes)), Signal()
        m.d.comb += [
            # The lowest one of a word is what its two's complement has in common with it.
            left.eq(entry.active & ~given),
            lowest.eq(left & (~left + 1)),
            ends.eq(left == lowest),
            self.positions.valid.eq(self.entries.valid),
            self.entries.ready.eq(self.positions.ready & ends),
            position.position.eq(entry.base + lane),
            position.last.eq(entry.last & ends),
        ]
        for name in self.position.members:
            if f"{name}s" in self.entry.members:
                m.d.comb += position[name].eq(entry[f"{name}s"][lane])
        if "recent" in self.position.members:
            first = entry.recent & ~Cat(Const(0, 1), entry.recent)
            m.d.comb += [
                position.recent.eq((entry.recent & lowest).any()),
                # Recent lanes are the upper ones: the first has none below it.
                position.graduates.eq(entry.graduates & (first & lowest).any()),
            ]
        for bit in range(lane.shape().width):
            m.d.comb += lane[bit].eq(
                Cat(lowest[index] for index in range(self.lanes) if index >> bit & 1).any()
            )
        with m.If(self.positions.valid & self.positions.ready):
            m.d.sync += given.eq(Mux(ends, 0, given | lowest))
        return m
