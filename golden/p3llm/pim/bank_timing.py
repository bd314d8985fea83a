"""Model of HBM2's timing rules, which compares each command with every earlier one.

It is based on the nanoseconds of a data sheet and has no counters: each rule consists of two
events, the banks that they share, and the minimum time between them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil

CYCLE_NS = 2.0
"""tCCD_S of HBM2 at 2 Gb/s per pin: two periods of a clock of 1 GHz."""

NANOSECONDS = {
    "rcd": 14.0,
    "rp": 14.0,
    "ras": 33.0,
    "ccd": 4.0,
    "rtp": 5.0,
    "wr": 16.0,
    "wtr": 7.5,
    "rrd": 4.0,
    "rfc": 260.0,
    "refi": 3900.0,
}
"""Typical times of an 8 Gb HBM2 stack."""

BANK_GROUPS = 4
POSTPONED = 9


def cycles(name: str) -> int:
    """Return a time of the data sheet in cycles, rounded up."""
    return ceil(NANOSECONDS[name] / CYCLE_NS)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A command at the banks: activate, precharge, refresh, read or write.

    Parameters
    ----------
    cycle : int
        Cycle of the event.
    kind : str
        ``activate``, ``precharge``, ``refresh``, ``read`` or ``write``.
    banks : frozenset[int]
        Banks of the event; all banks for a refresh.
    """

    cycle: int
    kind: str
    banks: frozenset[int]


SAME_BANK = (
    ("rcd", ("activate",), ("read", "write"), "rcd"),
    ("rp", ("precharge",), ("activate", "refresh"), "rp"),
    ("rfc", ("refresh",), ("activate", "refresh"), "rp"),
    ("ras", ("activate",), ("precharge",), "ras"),
    ("rtp", ("read",), ("precharge",), "ras"),
    ("wr", ("write",), ("precharge",), "ras"),
)
"""Rules between events of one bank: time, earlier kinds, later kinds, violation."""

ANY_BANK = (("rrd", ("activate",), ("activate",), "rrd"), ("wtr", ("write",), ("read",), "wtr"))
"""Rules between events of any banks."""


class RuleChecker:
    """Checks events in order; an illegal event has no effect.

    Parameters
    ----------
    banks : int
        Number of banks of the pseudo-channel.
    times : dict[str, int], optional
        Times in cycles by name; those of the data sheet if omitted.
    """

    def __init__(self, banks: int, times: dict[str, int] | None = None) -> None:
        self.banks = banks
        self.times = times or {name: cycles(name) for name in NANOSECONDS}
        self.past: list[Event] = []
        self.open: set[int] = set()

    def check(self, events: Iterable[Event]) -> set[str]:
        """Return the violations of one cycle, columns before rows; record the legal events."""
        broken: set[str] = set()
        now = list(events)
        kept = []
        for event in sorted(now, key=lambda one: one.kind not in ("read", "write")):
            faults = self.faults(event, kept)
            broken |= faults
            if not faults:
                kept.append(event)
        for event in kept:
            if event.kind == "activate":
                self.open |= event.banks
            elif event.kind == "precharge":
                # A precharge of a closed bank has no effect.
                event = replace(event, banks=event.banks & self.open)
                self.open -= event.banks
            self.past.append(event)
        return broken

    def faults(self, event: Event, same_cycle: list[Event]) -> set[str]:
        """Return the rules that an event violates after earlier ones and those of its cycle."""
        faults = set()
        column = event.kind in ("read", "write")
        if column and not event.banks <= self.open:
            faults.add("closed")
        if event.kind in ("activate", "refresh") and event.banks & self.open:
            faults.add("opened")
        longest = max(self.times[name] for name in self.times if name != "refi")
        for before in chain(reversed(same_cycle), reversed(self.past)):
            distance = event.cycle - before.cycle
            if distance > longest:
                break
            faults |= self._pair(before, event, distance)
        # A closed bank has no tRCD; an open bank, which cannot be opened or refreshed, has no tRP.
        if "closed" in faults:
            faults.discard("rcd")
        if "opened" in faults:
            faults.discard("rp")
        return faults

    def _pair(self, before: Event, event: Event, distance: int) -> set[str]:
        """Return the rules that two events violate."""
        faults = set()
        shared = before.banks & event.banks
        if event.kind == "precharge":
            # A precharge of a closed bank has no effect.
            shared &= self.open
        for name, earlier, later, says in (*(SAME_BANK if shared else ()), *ANY_BANK):
            if before.kind in earlier and event.kind in later and distance < self.times[name]:
                faults.add(says)
        columns = ("read", "write")
        if before.kind in columns and event.kind in columns and distance < self.times["ccd"]:
            size = self.banks // BANK_GROUPS
            groups = ({bank // size for bank in one.banks} for one in (before, event))
            if set.intersection(*groups):
                faults.add("ccd")
        return faults


Command = tuple[str, frozenset[int]]
"""Kind of an event and its banks; all banks for a refresh."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of the check of one cycle's commands.

    Parameters
    ----------
    row, column : bool
        The command is valid and legal.
    broken : frozenset[str]
        Violated rules, and ``refi`` if a refresh is overdue.
    """

    row: bool
    column: bool
    broken: frozenset[str]


class Verdicts:
    """Checks the commands of every cycle after a reset.

    Parameters
    ----------
    banks : int
        Number of banks of the pseudo-channel.
    times : dict[str, int]
        Times in cycles by name.
    """

    def __init__(self, banks: int, times: dict[str, int]) -> None:
        self.checker = RuleChecker(banks, times)
        self.cycle = 0
        self.refreshed = -1

    def pass_cycle(self, row: Command | None, column: Command | None) -> Verdict:
        """Return the verdict on a cycle's commands, and advance to the next cycle."""
        before = len(self.checker.past)
        commands = [command for command in (row, column) if command]
        broken = self.checker.check(
            Event(cycle=self.cycle, kind=kind, banks=banks) for kind, banks in commands
        )
        kinds = {event.kind for event in self.checker.past[before:]}
        if self.cycle - self.refreshed > POSTPONED * self.checker.times["refi"]:
            broken.add("refi")
        if "refresh" in kinds:
            self.refreshed = self.cycle
        self.cycle += 1
        return Verdict(
            row=row is not None and row[0] in kinds,
            column=column is not None and column[0] in kinds,
            broken=frozenset(broken),
        )
