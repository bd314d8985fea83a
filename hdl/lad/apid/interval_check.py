"""Comparison of a score with the interval of a mode."""

from amaranth.hdl import Array, Const, Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_order import number_order, number_order_key
from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import IntervalTable
from hdl.unit import Unit


class IntervalCheck(Unit):
    """Look up the bounds of a mode's interval and compare a difference with both.

    **Latency** 1 cycle. **Throughput** one comparison per cycle. **Numerics** exact; see
    `hdl.lad.apid.active_position_module`.

    Parameters
    ----------
    table : IntervalTable
        The intervals.

    Members
    -------
    difference : In(16)
        A score less the maximum, in FP16; the only NaN is the positive quiet one.
    mode : In(4)
        The mode, the number of an interval.
    enable : In(1)
        The register loads.
    outside : Out(1)
        The difference is outside the mode's interval.
    """

    def __init__(self, *, table: IntervalTable) -> None:
        self.table = table
        super().__init__(
            {"difference": In(FP16), "mode": In(MODE_BITS), "enable": In(1), "outside": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """Compare keys of the number order."""
        m = Module()
        bounds = [number_order_key(BINARY16, code) for code in self.table.lowers]
        # The missing lower bound is below all numbers, and equal to a NaN's key: a NaN is not above
        # any lower bound. The missing upper bound is the largest number.
        lowest, highest = 0, number_order_key(BINARY16, BINARY16.infinity or 0)
        # All 16 mode codes have an entry; codes beyond the table have that of the last interval.
        missing = (1 << MODE_BITS) - 1 - len(bounds)
        lowers = [lowest, *bounds, *bounds[-1:] * missing]
        uppers = [*bounds, *[highest] * (missing + 1)]
        lower = Array(Const(bound, FP16) for bound in lowers)[self.mode]
        upper = Array(Const(bound, FP16) for bound in uppers)[self.mode]
        key = Signal(FP16)
        m.d.comb += key.eq(number_order(BINARY16, self.difference))
        with m.If(self.enable):
            m.d.sync += self.outside.eq((key <= lower) | (key > upper))
        return m
