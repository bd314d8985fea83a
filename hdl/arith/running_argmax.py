"""The place of the largest of many integers that come a few at a time."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.arith.delay_line import delay_line
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit


class RunningArgmax(Unit):
    """Find the first of the largest values since `clear`.

    A knockout of a group's values, a level a cycle, whose winner meets the best so far.

    **Latency** ``log2(lanes) + 1`` cycles. **Throughput** a group a cycle. **Numerics** exact; of
    equal values the one that came first, or in the lower lane, is taken.

    Parameters
    ----------
    lanes : int
        Values of a group: a power of two.
    width : int
        Bits of a value, sign included.
    number_bits : int
        Bits of a value's number.

    Members
    -------
    values : In(array)
        A group.
    strobe : In(1)
        It counts.
    clear : In(1)
        Begin anew; not while a group is under way.
    number : Out(number_bits)
        Which value it is, counted from 0 since `clear`, lane by lane; 0 if there was none.
    largest : Out(signed(width))
        It; only if there was one.

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
        """Cycles from a group to what `largest` says of it."""
        return exact_log2(self.lanes) + 1

    def elaborate(self, platform: Any) -> Module:
        """Play the knockout; its winner is numbered where it meets the best so far."""
        m = Module()
        levels = exact_log2(self.lanes)
        # A player is its value and, from the lowest bit on, which side won each game.
        players: list[tuple[Value, list[Value]]] = [(value, []) for value in self.values]
        for level in range(levels):
            players = [
                self._game(m, f"{level}_{number}", *pair)
                for number, pair in enumerate(zip(players[::2], players[1::2], strict=True))
            ]
        winner, sides = players[0]
        arrived = delay_line(m, self.strobe, levels, name="strobe", reset=True)[-1]
        keep_first_largest(m, self, arrived, winner, Cat(*sides))
        return m

    def _game(
        self,
        m: Module,
        name: str,
        left: tuple[Value, list[Value]],
        right: tuple[Value, list[Value]],
    ) -> tuple[Value, list[Value]]:
        """Register the larger of two players, the left one if they are equal."""
        better = right[0] > left[0]
        value = Signal(signed(self.width), name=f"value_{name}", reset_less=True)
        sides = Signal(len(left[1]) + 1, name=f"sides_{name}", reset_less=True)
        m.d.sync += [
            value.eq(Mux(better, right[0], left[0])),
            sides.eq(Cat(Mux(better, Cat(*right[1]), Cat(*left[1])), better)),
        ]
        return value, list(sides)


def keep_first_largest(m: Module, unit: Any, arrived: Value, winner: Value, lane: Value) -> None:
    """Let each group's winner meet the best so far, and number it.

    Parameters
    ----------
    m : Module
        Where it is done.
    unit : Unit
        Has `number_bits`, `clear`, `number` and `largest`, as of `RunningArgmax`.
    arrived : Value
        A group's winner is there.
    winner, lane : Value
        It, and its place in the group.
    """
    # Groups come in order: a count at the end of the way is as good as a number that travels.
    group, begun = Signal(max(unit.number_bits - len(lane), 1)), Signal()
    with m.If(arrived):
        m.d.sync += [group.eq(group + 1), begun.eq(1)]
        # Only a larger value takes the place, so that the first of equal ones stays.
        with m.If(~begun | (winner > unit.largest)):
            m.d.sync += [unit.largest.eq(winner), unit.number.eq(Cat(lane, group))]
    with m.If(unit.clear):
        m.d.sync += [group.eq(0), begun.eq(0), unit.number.eq(0)]
