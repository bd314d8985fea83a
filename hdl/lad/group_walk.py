"""Groups of a step's positions: which positions a group has, and which of them are in M."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

LARGE_MODES = 2
"""As many top intervals are large modes, whose scores are computed exactly."""


@dataclass(frozen=True)
class GroupWalk:
    """Where in a step a group stands.

    Parameters
    ----------
    base : Signal
        Its first position.
    remaining : Signal
        Positions from there on.
    begins, ends : Signal
        It is the step's first, or last.
    """

    base: Signal
    remaining: Signal
    begins: Signal
    ends: Signal


def walk_groups(m: Module, apid: Any, *, length: Value, taken: Value) -> GroupWalk:
    """Return the place of the group that is on offer; it moves on when the group is `taken`.

    Parameters
    ----------
    m : Module
        Where the counters are added.
    apid : ActivePositionModuleParameters
        Lanes, and the shape of a position.
    length : Value
        The step's number of positions, until its last group is taken.
    taken : Value
        The group is taken.
    """
    # Wide enough for what they are compared with, however short a step may be.
    most = max(2 ** len(length), apid.lanes + apid.recent + 2)
    later, remaining = Signal(range(most)), Signal(range(most), name="remaining")
    base, following = Signal(apid.position_shape, name="base"), Signal(apid.position_shape)
    begins, ends = Signal(init=1, name="begins"), Signal(name="ends")
    # A step begins with all of its positions.
    m.d.comb += [
        remaining.eq(Mux(begins, length, later)),
        base.eq(Mux(begins, 0, following)),
        ends.eq(remaining <= apid.lanes),
    ]
    with m.If(taken):
        m.d.sync += [
            later.eq(remaining - apid.lanes),
            following.eq(base + apid.lanes),
            begins.eq(ends),
        ]
    return GroupWalk(base, remaining, begins, ends)


def large_modes(apid: Any, walk: GroupWalk, modes: Any) -> list[Value]:
    """Return of each lane whether its position is in M, whose scores are computed exactly."""
    large = max(apid.table.intervals - LARGE_MODES, 0)
    found = []
    for lane in range(apid.lanes):
        exact = (modes[lane] >= large) | (walk.remaining <= lane + apid.recent)
        # The first position often has the largest score of all.
        found.append(exact | walk.begins if lane == 0 else exact)
    return found
