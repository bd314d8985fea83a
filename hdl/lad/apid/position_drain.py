"""Serialisation of groups of active lanes into single positions."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class PositionDrain(Unit):
    """Output the active lanes of each entry as positions, the lowest lane first.

    **Latency** 0 cycles. **Throughput** one position per cycle, also across entries.

    Parameters
    ----------
    lanes : int
        Lanes of an entry.
    entry, position : StructLayout
        Layouts of the payloads.

    Members
    -------
    entries : In(stream)
        The first position `base`, the `active` lanes (at least one), and `last`. Optional: fields
        with a value per lane, such as `modes`; the `recent` lanes, and `graduates` if the first
        recent lane graduates.
    positions : Out(stream)
        `position`; the lane's value of each field with a value per lane, such as `mode`; `recent`
        and `graduates`; `last` with the last active lane of an entry with `last`.
    """

    def __init__(
        self, *, lanes: int, entry: data.StructLayout, position: data.StructLayout
    ) -> None:
        self.lanes = lanes
        self.entry, self.position = entry, position
        super().__init__(
            {"entries": In(stream.Signature(entry)), "positions": Out(stream.Signature(position))}
        )

    def elaborate(self, platform: object) -> Module:
        """Output the lowest active lane that has not been output yet."""
        m = Module()
        entry, position = self.entries.payload, self.positions.payload
        given, left, lowest = (Signal(self.lanes, name=name) for name in ("given", "left", "low"))
        lane, ends = Signal(range(self.lanes)), Signal()
        m.d.comb += [
            # The lowest 1 of a word is the AND of the word and its two's complement.
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
                # Recent lanes are the upper ones: below the first recent lane there is none.
                position.graduates.eq(entry.graduates & (first & lowest).any()),
            ]
        for bit in range(lane.shape().width):
            m.d.comb += lane[bit].eq(
                Cat(lowest[index] for index in range(self.lanes) if index >> bit & 1).any()
            )
        with m.If(self.positions.valid & self.positions.ready):
            m.d.sync += given.eq(Mux(ends, 0, given | lowest))
        return m
