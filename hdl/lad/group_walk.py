"""Groups of a step's positions: the positions of each group, and those of them in M."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters

LARGE_MODES = 2
"""Number of top intervals that are large modes, whose scores are computed exactly (EAS.3)."""


@dataclass(frozen=True)
class GroupCursor:
    """Current group of a step's positions.

    Parameters
    ----------
    base : Signal
        First position of the group.
    remaining : Signal
        Positions of the step from `base` on.
    begins, ends : Signal
        The group is the first of the step; the last of the step.
    present : Signal
        The lanes that hold positions of the step.
    """

    base: Signal
    remaining: Signal
    begins: Signal
    ends: Signal
    present: Signal


def count_groups(
    m: Module, apid: ActivePositionModuleParameters, *, length: Value, taken: Value
) -> GroupCursor:
    """Count through the groups of a step; advance when a group is `taken`.

    Parameters
    ----------
    m : Module
        Module to which the counters are added.
    apid : ActivePositionModuleParameters
        Lanes, and shape of a position.
    length : Value
        Number of positions of the step, constant until its last group is transferred.
    taken : Value
        The group is transferred.
    """
    # Wide enough for all comparisons, however short the steps are.
    most = max(2 ** len(length), apid.lanes + apid.recent + 2)
    later, remaining = Signal(range(most)), Signal(range(most), name="remaining")
    base, following = Signal(apid.position_shape, name="base"), Signal(apid.position_shape)
    begins, ends = Signal(init=1, name="begins"), Signal(name="ends")
    present = Signal(apid.lanes, name="present")
    # The first group of a step has all positions remaining.
    m.d.comb += [
        remaining.eq(Mux(begins, length, later)),
        base.eq(Mux(begins, 0, following)),
        ends.eq(remaining <= apid.lanes),
        present.eq(Cat(remaining > lane for lane in range(apid.lanes))),
    ]
    with m.If(taken):
        m.d.sync += [
            later.eq(remaining - apid.lanes),
            following.eq(base + apid.lanes),
            begins.eq(ends),
        ]
    return GroupCursor(base, remaining, begins, ends, present)


def large_modes(
    apid: ActivePositionModuleParameters, cursor: GroupCursor, modes: data.View
) -> list[Value]:
    """Return per lane whether its position is in M, whose scores are computed exactly."""
    large = max(apid.table.intervals - LARGE_MODES, 0)
    found = []
    for lane in range(apid.lanes):
        exact = (modes[lane] >= large) | (cursor.remaining <= lane + apid.recent)
        # Position 0 often has the largest score of all.
        found.append(exact | cursor.begins if lane == 0 else exact)
    return found
