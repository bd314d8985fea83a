"""The sequence of tasks of the AC module in each step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value


@dataclass(frozen=True)
class Tasks:
    """The current task, its counters and its strobes.

    Members
    -------
    on : Callable[[str], Value]
        Return whether the task of that name is active.
    place : Signal
        Cycles since the task began.
    slot, rotation : Signal
        Index of the partial sum that the adders output in the next cycle, and the number of rounds
        of combination that are complete.
    turn : Value
        An operand that enters the vector units now will be added to the partial sum whose turn it
        is.
    transfer, last : Signal
        A group of positions is accepted; it is the step's last.
    begin_update : Signal
        The update of the caches begins.
    begins, done : Signal
        A step begins; it is done, and its caches can be written out.
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


def tasks(m: Module, unit: Any, loaded: Value, busy: Value, output: Value) -> Tasks:
    """Build the FSM of the tasks and the counters of the interleaved partial sums.

    Parameters
    ----------
    unit : AttentionComputationModule
        The module whose streams and parameters the tasks use.
    loaded : Value
        The caches of the next step are loaded.
    busy : Value
        The update store still reads positions.
    output : Value
        The first vector unit outputs the head's attention.
    """
    p = unit.parameters
    sums, delay = p.cache_stages, p.product_latency
    place = Signal(range(p.columns + p.groups + sums + delay + 4))
    turn, rotation = Signal(range(sums)), Signal(range(sums + 3))
    transfer, last, begin_update, begins, done = (
        Signal(name=name) for name in ("transfer", "last", "begin_update", "begins", "done")
    )
    # Partial sums circulate in the adders: an operand is issued when its sum will be at the output.
    slot, ahead = _slots(m, sums, delay)
    with m.If(transfer):
        m.d.sync += turn.eq(Mux(turn == sums - 1, 0, turn + 1))
    # Remaining cycles until the pipelines are empty after the task's last operand.
    left = Signal(range(max(p.settle_cycles, p.drain_cycles) + 1))
    idle = left == 0
    m.d.sync += [left.eq(Mux(idle, 0, left - 1)), place.eq(place + 1)]
    with m.FSM(name="tasks") as fsm:
        # The maximum is computed in stage 2, the caches are loaded from outside: wait for both.
        with m.State("WAIT"):
            m.d.sync += [place.eq(0), turn.eq(0)]
            m.d.comb += begins.eq(unit.steps.valid & loaded)
            with m.If(begins):
                m.next = "COLUMNS"
        # AC.1 and AC.2: until the vector units are free and all adders have output zeros.
        with m.State("COLUMNS"), m.If(place == max(p.groups + 2, sums) - 1):
            m.d.sync += left.eq(p.settle_cycles)
            m.next = "CORRECT"
        # AC.3, one transfer of positions at a time; `last` marks the end of the step.
        with m.State("CORRECT"), m.If(transfer & last):
            with m.If(left < delay + 1):
                m.d.sync += left.eq(delay + 1)
            m.next = "SETTLE"
        # Until the last product is added to its sum.
        with m.State("SETTLE"), m.If(idle & (slot == sums - 1)):
            m.d.sync += rotation.eq(0)
            m.next = "COMBINE"
        # Each rotation adds one partial sum of each lane.
        with m.State("COMBINE"):
            with m.If(slot == sums - 1):
                m.d.sync += rotation.eq(rotation + 1)
            with m.If((rotation == sums + 2) & (slot == 0)):
                m.d.comb += begin_update.eq(1)
                m.d.sync += left.eq(p.drain_cycles)
                m.next = "UPDATE"
        # AC.5 to AC.8: until the last column is written and the reciprocal is valid.
        with m.State("UPDATE"):
            with m.If(busy):
                m.d.sync += left.eq(p.drain_cycles)
            with m.Elif(idle & ~unit.outputs.valid):
                m.d.sync += place.eq(0)
                m.next = "OUTPUT"
        # AC.4: numerator times reciprocal of the denominator.
        with m.State("OUTPUT"), m.If(output):
            m.d.comb += done.eq(1)
            m.next = "WAIT"
    met = ahead == turn
    strobes = (transfer, last, begin_update, begins, done)
    return Tasks(fsm.ongoing, place, slot, rotation, met, *strobes)


def _slots(m: Module, sums: int, delay: int) -> tuple[Signal, Signal]:
    """Count the partial sum at the adders' output, and the one that a new operand will be added to.

    Both counters run in every task, since the partial sums always circulate.
    """
    slot, ahead = Signal(range(sums), init=1 % sums), Signal(range(sums), init=delay % sums)
    for counter in (slot, ahead):
        m.d.sync += counter.eq(Mux(counter == sums - 1, 0, counter + 1))
    return slot, ahead
