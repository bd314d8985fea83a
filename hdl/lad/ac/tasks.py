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
        Its cycles.
    slot, rotation : Signal
        Which of the interleaved sums comes out of the adders in the next cycle, and how often all
        have been joined.
    turn : Value
        What enters the vector units now meets the sum whose turn it is.
    transfer, last : Signal
        Positions are taken, and they are the last.
    begin_update : Signal
        The updates begin.
    begins, done : Signal
        A step begins; it is done, and its caches can leave.
    """

    on: Callable[[str], Value]
    place: Signal
    slot: Signal
    rotation: Signal
    turn: Value
    transfer: Signal
    last: Signal
    begin_update: Signal
    begins: Signal
    done: Signal


def tasks(m: Module, unit: Any, loaded: Value, walks: Value, output: Value) -> Tasks:
    """Go from task to task; say whose turn the interleaved sums are.

    Parameters
    ----------
    unit : AttentionComputationModule
        Its streams and parameters.
    loaded : Value
        The caches of the next step are there.
    walks : Value
        The stored positions still go over the columns.
    output : Value
        The head's output comes out of the first vector unit.
    """
    p = unit.parameters
    sums, delay = p.cache_stages, p.product_latency
    place = Signal(range(p.columns + p.groups + sums + delay + 4))
    turn, rotation = Signal(range(sums)), Signal(range(sums + 3))
    transfer, last, begin_update, begins, done = (
        Signal(name=name) for name in ("transfer", "last", "begin_update", "begins", "done")
    )
    # Sums go round in the adders: who adds to one waits for its slot.
    slot, ahead = _slots(m, sums, delay)
    with m.If(transfer):
        m.d.sync += turn.eq(Mux(turn == sums - 1, 0, turn + 1))
    # Counts what pipelines still hold when their task has taken its last operand.
    left = Signal(range(max(p.settle_cycles, p.drain_cycles) + 1))
    idle = left == 0
    m.d.sync += [left.eq(Mux(idle, 0, left - 1)), place.eq(place + 1)]
    with m.FSM(name="tasks") as fsm:
        # The maximum comes from stage 2, the caches from outside: whichever is later.
        with m.State("WAIT"):
            m.d.sync += [place.eq(0), turn.eq(0)]
            m.d.comb += begins.eq(unit.steps.valid & loaded)
            with m.If(begins):
                m.next = "COLUMNS"
        # Until the vector units are free, and zeros have come out of all adders.
        with m.State("COLUMNS"), m.If(place == max(p.groups + 2, sums) - 1):
            m.d.sync += left.eq(p.settle_cycles)
            m.next = "CORRECT"
        # AC.3, as positions come; the last one names the step's end.
        with m.State("CORRECT"), m.If(transfer & last):
            with m.If(left < delay + 1):
                m.d.sync += left.eq(delay + 1)
            m.next = "SETTLE"
        # Until the last product is in its sum.
        with m.State("SETTLE"), m.If(idle & (slot == sums - 1)):
            m.d.sync += rotation.eq(0)
            m.next = "COMBINE"
        # One sum of each lane joins the caches' part in every rotation.
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
        # AC.4: numerator times reciprocal.
        with m.State("OUTPUT"), m.If(output):
            m.d.comb += done.eq(1)
            m.next = "WAIT"
    met = ahead == turn
    strobes = (transfer, last, begin_update, begins, done)
    return Tasks(fsm.ongoing, place, slot, rotation, met, *strobes)


def _slots(m: Module, sums: int, delay: int) -> tuple[Signal, Signal]:
    """Count the interleaved sums as they leave the adders next, and as they will meet new products.

    Both run freely, whatever the task: a sum's place in the adders never stops moving.
    """
    slot, ahead = Signal(range(sums), init=1 % sums), Signal(range(sums), init=delay % sums)
    for counter in (slot, ahead):
        m.d.sync += counter.eq(Mux(counter == sums - 1, 0, counter + 1))
    return slot, ahead
