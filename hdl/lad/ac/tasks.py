"""What the attention computation module does one after the other, in each step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value


@dataclass(frozen=True)
class Tasks:
    """The task that is under way.

    Members
    -------
    on : Callable[[str], Value]
        Whether it is the one of a name.
    place : Signal
        Its cycles; or the words that it has handed over.
    slot, rotation : Signal
        Which of the interleaved sums comes out of the adders, and how often all have been joined.
    turn : Value
        What enters the vector units now meets the sum whose turn it is.
    transfer, last : Signal
        Positions are taken, and they are the last.
    begin_update : Signal
        The updates begin.
    word : Signal
        A word of the caches comes, or is read to leave.
    """

    on: Callable[[str], Value]
    place: Signal
    slot: Signal
    rotation: Signal
    turn: Value
    transfer: Signal
    last: Signal
    begin_update: Signal
    word: Signal


def tasks(m: Module, unit: Any, walks: Value, output: Value) -> Tasks:
    """Go from task to task; say whose turn the interleaved sums are.

    Parameters
    ----------
    unit : AttentionComputationModule
        Its streams and parameters.
    walks : Value
        The stored positions still go over the columns.
    output : Value
        The head's output comes out of the first vector unit.
    """
    p = unit.parameters
    sums, delay = p.cache_stages, p.vector.multiply_stages
    place = Signal(range(p.columns + p.groups + sums + delay + 4))
    turn, rotation = Signal(range(sums)), Signal(range(sums + 3))
    transfer, last, begin_update, word = (
        Signal(name=name) for name in ("transfer", "last", "begin_update", "word")
    )
    slot, ahead = _slots(m, sums, delay)
    with m.If(transfer):
        m.d.sync += turn.eq(Mux(turn == sums - 1, 0, turn + 1))
    left = Signal(range(max(p.settle_cycles, p.drain_cycles) + 1))
    idle = left == 0
    m.d.sync += [left.eq(Mux(idle, 0, left - 1)), place.eq(place + 1)]
    with m.FSM(name="tasks") as fsm:
        with m.State("LOAD"):
            m.d.sync += place.eq(place + word)
            with m.If(word & (place == p.columns - 1)):
                m.next = "WAIT"
        with m.State("WAIT"):
            m.d.sync += [place.eq(0), turn.eq(0)]
            with m.If(unit.steps.valid):
                m.next = "COLUMNS"
        # Until the vector units are free, and zeros have come out of all adders.
        with m.State("COLUMNS"), m.If(place == max(p.groups + 2, sums) - 1):
            m.d.sync += left.eq(p.settle_cycles)
            m.next = "CORRECT"
        with m.State("CORRECT"), m.If(transfer & last):
            with m.If(left < delay + 1):
                m.d.sync += left.eq(delay + 1)
            m.next = "SETTLE"
        with m.State("SETTLE"), m.If(idle & (slot == sums - 1)):
            m.d.sync += rotation.eq(0)
            m.next = "COMBINE"
        with m.State("COMBINE"):
            with m.If(slot == sums - 1):
                m.d.sync += rotation.eq(rotation + 1)
            with m.If((rotation == sums + 2) & (slot == 0)):
                m.d.comb += begin_update.eq(1)
                m.d.sync += left.eq(p.drain_cycles)
                m.next = "UPDATE"
        # Until the last column is written, and the reciprocal is there.
        with m.State("UPDATE"):
            with m.If(walks):
                m.d.sync += left.eq(p.drain_cycles)
            with m.Elif(idle & ~unit.outputs.valid):
                m.d.sync += place.eq(0)
                m.next = "OUTPUT"
        with m.State("OUTPUT"), m.If(output):
            m.d.sync += place.eq(0)
            m.next = "STORE"
        with m.State("STORE"):
            m.d.sync += place.eq(place + word)
            leaves = unit.updated.valid & unit.updated.ready
            with m.If(leaves & (place == p.columns)):
                m.d.sync += place.eq(0)
                m.next = "LOAD"
    return Tasks(
        fsm.ongoing, place, slot, rotation, ahead == turn, transfer, last, begin_update, word
    )


def _slots(m: Module, sums: int, delay: int) -> tuple[Signal, Signal]:
    """Count the interleaved sums as they leave the adders, and as they will meet new products.

    Both run freely, whatever the task: a sum's place in the adders never stops moving.
    """
    slot, ahead = Signal(range(sums)), Signal(range(sums), init=delay % sums)
    for counter in (slot, ahead):
        m.d.sync += counter.eq(Mux(counter == sums - 1, 0, counter + 1))
    return slot, ahead
