"""Whether a score is in the interval of a mode."""

from typing import Any

from amaranth.hdl import Array, Const, Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import IntervalTable
from hdl.lad.ordered import ordered, ordered_constant
from hdl.unit import Unit


class IntervalCheck(Unit):
    """Look up the bounds of a mode's interval, and compare a difference with both.

    **Latency** 1 cycle. **Throughput** one comparison a cycle. **Numerics** exact; see
    `hdl.lad.apid.active_position_module`.

    Parameters
    ----------
    table : IntervalTable
        The intervals.

    Members
    -------
    difference : In(16)
        A score less the maximum; of NaNs only the quiet one of sign 0.
    mode : In(4)
        Which interval.
    enable : In(1)
        The register moves.
    outside : Out(1)
        It is not in there.
    """

    def __init__(self, *, table: IntervalTable) -> None:
        self.table = table
        super().__init__(
            {"difference": In(FP16), "mode": In(MODE_BITS), "enable": In(1), "outside": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare codes as integers, which FP16's codes are but for the sign."""
        m = Module()
        bounds = [ordered_constant(code) for code in self.table.lowers]
        # No lower bound is below all numbers; no upper one is above all but an adder's NaN.
        lowest, highest = 0, ordered_constant(BINARY16.infinity or 0)
        # All codes of a mode have an entry, those beyond the table the last one's.
        missing = (1 << MODE_BITS) - 1 - len(bounds)
        lowers = [lowest, *bounds, *bounds[-1:] * missing]
        uppers = [*bounds, *[highest] * (missing + 1)]
        lower = Array(Const(bound, FP16) for bound in lowers)[self.mode]
        upper = Array(Const(bound, FP16) for bound in uppers)[self.mode]
        key = Signal(FP16)
        m.d.comb += key.eq(ordered(self.difference))
        with m.If(self.enable):
            m.d.sync += self.outside.eq((key <= lower) | (key > upper))
        return m
