"""Index of the largest of many integers that arrive several per cycle."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.arith.delay_line import delay_line
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class RunningArgmax(Unit):
    """Running argmax: the index of the largest value since `clear`.

    A comparator tree with one registered level per cycle finds the maximum of a group. The result
    is compared with the running maximum.

    **Latency** ``log2(lanes) + 1`` cycles. **Throughput** one group per cycle. **Numerics** exact;
    ties resolve to the lowest index.

    Parameters
    ----------
    lanes : int
        Values per group, a power of two from 1 to 64.
    width : int
        Bits of a value, including the sign.
    number_bits : int
        Bits of an index.

    Members
    -------
    values : In(array)
        One group of values.
    strobe : In(1)
        `values` is valid.
    clear : In(1)
        Restart; must not be asserted while a group is in flight.
    number : Out(number_bits)
        Index of the largest value, counted from 0 at `clear` in lane order; 0 if there was no
        value.
    largest : Out(signed(width))
        The largest value; valid once a group has been processed.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, lanes: int, width: int, number_bits: int) -> None:
        require_power_of_two("lanes", lanes, 1, 64)
        require_range("width", width, 2, 64)
        require_range("number_bits", number_bits, max(exact_log2(lanes), 1), 32)
        self.lanes, self.width, self.number_bits = lanes, width, number_bits
        super().__init__(
            {
                "values": In(data.ArrayLayout(signed(width), lanes)),
                "strobe": In(1),
                "clear": In(1),
                "number": Out(number_bits),
                "largest": Out(signed(width)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a group at `values` to its effect on `largest`."""
        return exact_log2(self.lanes) + 1

    def elaborate(self, platform: Any) -> Module:
        """Build the comparator tree and compare its result with the running maximum."""
        m = Module()
        levels = exact_log2(self.lanes)
        # An operand is a value and, lowest level first, the side that each comparison selected.
        operands: list[tuple[Value, list[Value]]] = [(value, []) for value in self.values]
        for level in range(levels):
            operands = [
                self._larger(m, f"{level}_{number}", *pair)
                for number, pair in enumerate(zip(operands[::2], operands[1::2], strict=True))
            ]
        winner, sides = operands[0]
        arrived = delay_line(m, self.strobe, levels, name="strobe", reset=True)[-1]
        keep_first_largest(m, self, arrived, winner, Cat(*sides))
        return m

    def _larger(
        self,
        m: Module,
        name: str,
        left: tuple[Value, list[Value]],
        right: tuple[Value, list[Value]],
    ) -> tuple[Value, list[Value]]:
        """Register the larger of two operands; on a tie, the left one."""
        better = right[0] > left[0]
        value = Signal(signed(self.width), name=f"value_{name}", reset_less=True)
        sides = Signal(len(left[1]) + 1, name=f"sides_{name}", reset_less=True)
        m.d.sync += [
            value.eq(Mux(better, right[0], left[0])),
            sides.eq(Cat(Mux(better, Cat(*right[1]), Cat(*left[1])), better)),
        ]
        return value, list(sides)


def keep_first_largest(m: Module, unit: Any, arrived: Value, winner: Value, lane: Value) -> None:
    """Compare the maximum of each group with the running maximum and update its index.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    unit : Unit
        Unit with `number_bits`, `clear`, `number` and `largest`, as `RunningArgmax`.
    arrived : Value
        The maximum of a group is valid.
    winner, lane : Value
        The maximum and its lane.
    """
    # Groups arrive in order, so a counter here replaces an index that travels with each group.
    group, begun = Signal(max(unit.number_bits - len(lane), 1)), Signal()
    with m.If(arrived):
        m.d.sync += [group.eq(group + 1), begun.eq(1)]
        # Only a strictly larger value replaces the maximum, so that ties resolve to the lowest
        # index.
        with m.If(~begun | (winner > unit.largest)):
            m.d.sync += [unit.largest.eq(winner), unit.number.eq(Cat(lane, group))]
    with m.If(unit.clear):
        m.d.sync += [group.eq(0), begun.eq(0), unit.number.eq(0)]
