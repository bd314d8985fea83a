"""HBM2's rules from its own figures: a trace is judged by what came before, pair by pair.

Written from the nanoseconds of a data sheet, not from any counter: each rule names two events, the
banks that they share, and the least time between them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil

CYCLE_NS = 2.0
"""tCCD_S of HBM2 at 2 Gb/s a pin: two periods of a clock of 1 GHz."""

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
        When.
    kind : str
        ``activate``, ``precharge``, ``refresh``, ``read`` or ``write``.
    banks : frozenset[int]
        Where; all of them for a refresh.
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
"""Rules between events of one bank: the time, earlier kinds, later kinds, what is broken."""

ANY_BANK = (("rrd", ("activate",), ("activate",), "rrd"), ("wtr", ("write",), ("read",), "wtr"))
"""Rules between events of any banks."""


class Judge:
    """Judges events in their order; what is broken is taken as not having come.

    Parameters
    ----------
    banks : int
        Banks of the pseudo-channel.
    times : dict[str, int], optional
        Cycles by name; those of the data sheet, if omitted.
    """

    def __init__(self, banks: int, times: dict[str, int] | None = None) -> None:
        self.banks = banks
        self.times = times or {name: cycles(name) for name in NANOSECONDS}
        self.past: list[Event] = []
        self.open: set[int] = set()

    def judge(self, events: Iterable[Event]) -> set[str]:
        """Return what the events of one cycle break, columns before rows; keep the legal ones."""
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
                # A bank that is closed is not closed again.
                event = replace(event, banks=event.banks & self.open)
                self.open -= event.banks
            self.past.append(event)
        return broken

    def faults(self, event: Event, same_cycle: list[Event]) -> set[str]:
        """Return the rules that an event breaks, beside those of its own cycle that come first."""
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
        # A closed bank has no time to wait for; an open one cannot be opened or refreshed.
        if "closed" in faults:
            faults.discard("rcd")
        if "opened" in faults:
            faults.discard("rp")
        return faults

    def _pair(self, before: Event, event: Event, distance: int) -> set[str]:
        """Return the rules that two events break."""
        faults = set()
        shared = before.banks & event.banks
        if event.kind == "precharge":
            # What is closed already is not closed again.
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
"""A kind of event and its banks; of a refresh they are all."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of the commands of a cycle.

    Parameters
    ----------
    row, column : bool
        Whether there is one, and it may be carried out.
    broken : frozenset[str]
        The rules that they break, and ``refi`` where a refresh is late.
    """

    row: bool
    column: bool
    broken: frozenset[str]


class Verdicts:
    """Says in every cycle from a reset on what its commands may do.

    Parameters
    ----------
    banks : int
        Banks of the pseudo-channel.
    times : dict[str, int]
        Cycles by name.
    """

    def __init__(self, banks: int, times: dict[str, int]) -> None:
        self.judge = Judge(banks, times)
        self.cycle = 0
        self.refreshed = -1

    def pass_cycle(self, row: Command | None, column: Command | None) -> Verdict:
        """Return what is said of a cycle's commands, and go on to the next cycle."""
        before = len(self.judge.past)
        commands = [command for command in (row, column) if command]
        broken = self.judge.judge(
            Event(cycle=self.cycle, kind=kind, banks=banks) for kind, banks in commands
        )
        kinds = {event.kind for event in self.judge.past[before:]}
        if self.cycle - self.refreshed > POSTPONED * self.judge.times["refi"]:
            broken.add("refi")
        if "refresh" in kinds:
            self.refreshed = self.cycle
        self.cycle += 1
        return Verdict(
            row=row is not None and row[0] in kinds,
            column=column is not None and column[0] in kinds,
            broken=frozenset(broken),
        )
