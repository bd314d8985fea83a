"""Refreshes of the banks of one parity, while those of the other parity are in use."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class ParityRefresh(Unit):
    """Refresh the banks of one parity, one per command, then those of the other parity.

    Both parities together are a set, which counts as one refresh: HBM2 allows a bank to be
    refreshed again when all others have been refreshed as well.

    **Latency** 1 cycle from `begin` to `active`. **Throughput** one bank per `taken`.

    Parameters
    ----------
    units : int
        Banks of a parity, a power of two.

    Members
    -------
    begin, first : In(1)
        Start with the parity `first`, unless a parity is in progress, or a set continues with the
        other one.
    active : Out(1)
        A parity is in progress.
    parity, unit : Out
        The next bank to refresh.
    taken : In(1)
        This bank is refreshed in this cycle.
    half : Out(1)
        One parity has been refreshed, or is in progress, and the other one must follow.
    complete : Out(1)
        The refresh of this cycle completes a set.
    """

    def __init__(self, *, units: int) -> None:
        super().__init__(
            {
                "begin": In(1),
                "first": In(1),
                "active": Out(1),
                "parity": Out(1),
                "unit": Out(range(units)),
                "taken": In(1),
                "half": Out(1),
                "complete": Out(1),
            }
        )
        self.units = units

    def elaborate(self, platform: object) -> Module:
        """Count the banks of a parity."""
        m = Module()
        # The first parity of the set has begun; the other one is in progress or follows.
        second = Signal()
        ends = self.taken & (self.unit == self.units - 1)
        m.d.comb += self.complete.eq(ends & second)
        with m.If(self.taken):
            m.d.sync += self.unit.eq(self.unit + 1)
        with m.If(ends):
            m.d.sync += self.active.eq(0)
        with m.If(self.complete):
            m.d.sync += [self.half.eq(0), second.eq(0)]
        with m.If(self.begin & ~self.active & ~(self.half & (self.parity == self.first))):
            m.d.sync += [
                self.active.eq(1),
                self.parity.eq(self.first),
                self.unit.eq(0),
                self.half.eq(1),
                second.eq(self.half),
            ]
        return m
