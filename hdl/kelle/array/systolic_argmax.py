"""The first of the largest sums, found on their way down the array's lanes.

Section 5.3 of the paper lets scores meet the evictor row by row; the vocabulary's sums meet this
chain in the same way, a lane and a cycle after each other, before rounding makes several equal.
"""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.arith.running_argmax import keep_first_largest
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class SystolicArgmax(Unit):
    """Find the first of the largest values since `clear`, which come a lane a cycle.

    **Latency** ``rows + 1`` cycles from lane 0's value. **Throughput** a wavefront a cycle.
    **Numerics** exact; of equal values the one of the earlier wavefront, or of the lower lane, is
    taken.

    Parameters
    ----------
    rows : int
        Lanes: a power of two.
    width : int
        Bits of a value, sign included.
    number_bits : int
        Bits of a value's number.

    Members
    -------
    values : In(array)
        Lane i's value comes i cycles after lane 0's.
    strobe : In(1)
        Lane 0's value is the first of a wavefront.
    clear : In(1)
        Begin anew; not while a wavefront is under way.
    number : Out(number_bits)
        Which value it is, counted from 0 since `clear`, lane by lane.
    largest : Out(signed(width))
        It; only if there was one.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, rows: int, width: int, number_bits: int) -> None:
        require_power_of_two("rows", rows, 2, 64)
        require_range("width", width, 2, 64)
        require_range("number_bits", number_bits, exact_log2(rows), 32)
        self.rows, self.width, self.number_bits = rows, width, number_bits
        super().__init__(
            {
                "values": In(data.ArrayLayout(signed(width), rows)),
                "strobe": In(1),
                "clear": In(1),
                "number": Out(number_bits),
                "largest": Out(signed(width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Chain the lanes; the winner of a wavefront meets the best so far behind the last."""
        m = Module()
        lane_bits = exact_log2(self.rows)
        comes, value, lane = self.strobe, self.values[0], Const(0, lane_bits)
        for i in range(self.rows):
            # A lane's value meets the best above it, and only a larger one takes its place.
            better = self.values[i] > value
            there = Signal(name=f"there_{i}")
            best = Signal(signed(self.width), name=f"best_{i}", reset_less=True)
            where = Signal(lane_bits, name=f"where_{i}", reset_less=True)
            m.d.sync += [
                there.eq(comes),
                best.eq(Mux(better, self.values[i], value)),
                where.eq(Mux(better, i, lane)),
            ]
            comes, value, lane = there, best, where
        keep_first_largest(m, self, comes, value, lane)
        return m
