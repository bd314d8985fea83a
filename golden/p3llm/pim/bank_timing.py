"""Model of HBM2's timing rules, which compares each command with every earlier one.

It compares times of a data sheet in picoseconds and has neither counters nor times in cycles: each
rule consists of two events, the banks that they share, and the minimum time between them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from hdl.p3llm.pim.bank_timing import BankTimingParameters

PICOSECONDS = {
    "rcd": 14_000,
    "rp": 14_000,
    "ras": 33_000,
    "ccd_s": 2_000,
    "ccd_l": 4_000,
    "rtp": 5_000,
    "wr": 16_000,
    "wtr": 7_500,
    "rrd": 4_000,
    "rfc": 260_000,
    "refi": 3_900_000,
    "rfcsb": 160_000,
    "rrefd": 8_000,
}
"""Typical times of an 8 Gb HBM2 stack at 2 Gb/s per pin; tRFCSB and tRREFD are those of Ramulator's
model of HBM2 (`CMU-SAFARI/ramulator2`, `src/dram/impl/HBM2.cpp`)."""

BANK_GROUPS = 4
POSTPONED = 9


@dataclass(frozen=True, kw_only=True)
class Event:
    """A command at the banks: activate, precharge, refresh of all banks or one, read or write.

    Parameters
    ----------
    cycle : int
        Cycle of the event.
    kind : str
        ``activate``, ``precharge``, ``refresh``, ``refresh_bank``, ``read`` or ``write``.
    banks : frozenset[int]
        Banks of the event; all banks for a refresh.
    """

    cycle: int
    kind: str
    banks: frozenset[int]


BEGINS = ("activate", "refresh", "refresh_bank")
"""Events that a bank begins when it is closed."""

SAME_BANK = (
    ("rcd", ("activate",), ("read", "write"), "rcd"),
    ("rp", ("precharge",), BEGINS, "rp"),
    ("rfc", ("refresh",), BEGINS, "rp"),
    ("rfcsb", ("refresh_bank",), BEGINS, "rp"),
    ("ras", ("activate",), ("precharge",), "ras"),
    ("rtp", ("read",), ("precharge",), "ras"),
    ("wr", ("write",), ("precharge",), "ras"),
)
"""Rules between events of one bank: time, earlier kinds, later kinds, violation."""

ANY_BANK = (
    ("rrd", ("activate",), ("activate", "refresh_bank"), "rrd"),
    ("rrefd", ("refresh_bank",), ("activate", "refresh_bank"), "rrd"),
    ("wtr", ("write",), ("read",), "wtr"),
    ("ccd_s", ("read", "write"), ("read", "write"), "ccd"),
)
"""Rules between events of any banks."""


class RuleChecker:
    """Checks events in order; an illegal event has no effect.

    A set of refreshes of single banks has each bank once, in any order (JESD235); a refresh of all
    banks ends an incomplete set.

    Parameters
    ----------
    banks : int
        Number of banks of the pseudo-channel.
    times : dict[str, int], optional
        Times in ps by name; those of the data sheet if omitted.
    clock_mhz : int, optional
        Clock whose cycles the events have; 500 MHz if omitted.
    """

    def __init__(
        self, banks: int, times: dict[str, int] | None = None, clock_mhz: int = 500
    ) -> None:
        self.banks, self.clock_mhz = banks, clock_mhz
        self.times = times or PICOSECONDS
        self.past: list[Event] = []
        self.open: set[int] = set()
        self.in_set: set[int] = set()
        self.refreshes = 0

    @classmethod
    def of(cls, p: BankTimingParameters) -> "RuleChecker":
        """Return a checker with the times and the clock of a unit."""
        times = {name: getattr(p, f"{name}_ps") for name in PICOSECONDS}
        return cls(p.banks, times, p.clock_mhz)

    def passed(self, cycles: int, name: str) -> bool:
        """Return whether a number of cycles takes at least a time of the data sheet."""
        # A cycle takes 1e6 / clock_mhz ps; both sides are integers, so that no rounding decides.
        return cycles * 1_000_000 >= self.times[name] * self.clock_mhz

    def overdue(self, cycles: int) -> bool:
        """Return whether a number of cycles since a refresh exceeds the longest interval."""
        return cycles * 1_000_000 > POSTPONED * self.times["refi"] * self.clock_mhz

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
            elif event.kind == "refresh":
                self._complete_refresh()
            elif event.kind == "refresh_bank":
                self.in_set |= event.banks
                if len(self.in_set) == self.banks:
                    self._complete_refresh()
            self.past.append(event)
        return broken

    def _complete_refresh(self) -> None:
        """Count a refresh of all banks, or a complete set; the next set begins."""
        self.in_set.clear()
        self.refreshes += 1

    def faults(self, event: Event, same_cycle: list[Event]) -> set[str]:
        """Return the rules that an event violates after earlier ones and those of its cycle."""
        faults = set()
        column = event.kind in ("read", "write")
        if column and not event.banks <= self.open:
            faults.add("closed")
        if event.kind in BEGINS and event.banks & self.open:
            faults.add("opened")
        if event.kind == "refresh_bank" and event.banks & self.in_set:
            faults.add("refi")
        longest = max(self.times.keys() - {"refi"}, key=lambda name: self.times[name])
        for before in chain(reversed(same_cycle), reversed(self.past)):
            distance = event.cycle - before.cycle
            if self.passed(distance, longest):
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
            if before.kind in earlier and event.kind in later and not self.passed(distance, name):
                faults.add(says)
        columns = ("read", "write")
        both = before.kind in columns and event.kind in columns
        if both and not self.passed(distance, "ccd_l"):
            size = self.banks // BANK_GROUPS
            groups = ({bank // size for bank in one.banks} for one in (before, event))
            if set.intersection(*groups):
                faults.add("ccd")
        return faults


class RefreshRule:
    """Counts the refreshes that the data sheet requires, and those that were issued.

    A complete set of refreshes of single banks is one refresh. One refresh is required per tREFI
    since the reset. At most eight may be postponed, and at most eight may be issued in advance.

    Parameters
    ----------
    checker : RuleChecker
        The times and the clock.
    """

    def __init__(self, checker: RuleChecker) -> None:
        self.checker = checker
        self.issued = 0

    def pass_cycle(self, cycle: int, *, refreshes: bool) -> bool:
        """Record whether a cycle completes a refresh; return whether too many were postponed."""
        checker, most = self.checker, POSTPONED - 1
        required = cycle * 1_000_000 // (checker.times["refi"] * checker.clock_mhz)
        late = required - self.issued > most
        self.issued = min(self.issued + refreshes, required + most)
        return late


Command = tuple[str, frozenset[int]]
"""Kind of an event and its banks; all banks for ``refresh``."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of the check of one cycle's commands.

    Parameters
    ----------
    row, column : bool
        The command is valid and legal.
    broken : frozenset[str]
        Violated rules; ``refi`` also if a refresh is overdue.
    """

    row: bool
    column: bool
    broken: frozenset[str]


class Verdicts:
    """Checks the commands of every cycle after a reset.

    Parameters
    ----------
    checker : RuleChecker
        A checker of no earlier events.
    """

    def __init__(self, checker: RuleChecker) -> None:
        self.checker = checker
        self.cycle = 0
        self.refreshed = -1

    def pass_cycle(self, row: Command | None, column: Command | None) -> Verdict:
        """Return the verdict on a cycle's commands, and advance to the next cycle."""
        before, refreshes = len(self.checker.past), self.checker.refreshes
        commands = [command for command in (row, column) if command]
        broken = self.checker.check(
            Event(cycle=self.cycle, kind=kind, banks=banks) for kind, banks in commands
        )
        kinds = {event.kind for event in self.checker.past[before:]}
        if self.checker.overdue(self.cycle - self.refreshed):
            broken.add("refi")
        if self.checker.refreshes > refreshes:
            self.refreshed = self.cycle
        self.cycle += 1
        return Verdict(
            row=row is not None and row[0] in kinds,
            column=column is not None and column[0] in kinds,
            broken=frozenset(broken),
        )
