"""Argmax of sums that the array outputs lane by lane.

In Section 5.3 of the paper, the evictor compares scores row by row as the array outputs them. This
chain compares the sums of the LM head in the same way, before rounding makes several of them equal.
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
    """Compute the argmax of all values since `clear`, of which each lane is one cycle later.

    **Latency** ``rows + 1`` cycles from lane 0's value. **Throughput** one wavefront per cycle.
    **Numerics** exact; ties resolve to the lowest number: the earlier wavefront, then the lower
    lane.

    Parameters
    ----------
    rows : int
        Lanes: a power of two.
    width : int
        Bits of a value, sign included.
    number_bits : int
        Bits of the number of a value.

    Members
    -------
    values : In(array)
        Values of a wavefront; lane i's is sampled i cycles after lane 0's.
    strobe : In(1)
        Lane 0 has the first value of a wavefront.
    clear : In(1)
        Restart the count and the comparison; not while a wavefront is in flight.
    number : Out(number_bits)
        Number of the largest value, counted from 0 since `clear`, lane by lane.
    largest : Out(signed(width))
        The largest value; valid after the first wavefront since `clear`.

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
        """Chain the lanes; compare the wavefront's largest with the best so far after the last."""
        m = Module()
        lane_bits = exact_log2(self.rows)
        comes, value, lane = self.strobe, self.values[0], Const(0, lane_bits)
        for i in range(self.rows):
            # A lane's value replaces the largest value of the lanes above only if it is larger.
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
