"""Traces of row and column commands for the banks, with the model's verdict on every cycle."""

from collections import deque

import numpy as np

from golden.p3llm.pim.bank_timing import BANK_GROUPS, Command, RuleChecker, Verdict, Verdicts
from golden.p3llm.pim.pim_channel import Channel
from hdl.p3llm.pim.bank_timing import BankTimingParameters
from hdl.p3llm.pim.pim_channel import PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnitParameters
from testbenches.p3llm.pim.channel_traces import product_trace

ENDLESS = 2000
"""Cycles after which a repeated command can no longer become legal."""


class BankTrace:
    """Commands of every cycle after a reset.

    Parameters
    ----------
    p : BankTimingParameters
        Number of banks and their times.
    rng : numpy.random.Generator
        Source of random commands.

    Members
    -------
    rows, columns : list[Command | None]
        The commands of every cycle.
    verdicts : list[Verdict]
        The model's verdict on every cycle.
    """

    def __init__(self, p: BankTimingParameters, rng: np.random.Generator) -> None:
        self.p, self.rng = p, rng
        self.model = Verdicts(RuleChecker.of(p))
        self.all = frozenset(range(p.banks))
        self.rows: list[Command | None] = []
        self.columns: list[Command | None] = []
        self.verdicts: list[Verdict] = []

    @property
    def open(self) -> frozenset[int]:
        """Open banks."""
        return frozenset(self.model.checker.open)

    def send(self, row: Command | None = None, column: Command | None = None) -> Verdict:
        """Append a cycle."""
        self.rows.append(row)
        self.columns.append(column)
        verdict = self.model.pass_cycle(row, column)
        self.verdicts.append(verdict)
        return verdict

    def wait(self, cycles: int) -> None:
        """Append cycles without commands."""
        for _ in range(cycles):
            self.send()

    def repeat_row(self, kind: str, banks: frozenset[int] | None = None) -> None:
        """Repeat a row command until the first cycle in which it is legal."""
        self._repeat((kind, self.all if banks is None else banks), None)

    def repeat_column(self, kind: str, banks: frozenset[int]) -> None:
        """Repeat a column command until the first cycle in which it is legal."""
        self._repeat(None, (kind, banks))

    def _repeat(self, row: Command | None, column: Command | None) -> None:
        start = len(self.verdicts)
        while True:
            verdict = self.send(row, column)
            if verdict.row or verdict.column:
                return
            assert len(self.verdicts) < start + ENDLESS, (row, column, verdict)

    def close_all(self) -> None:
        """Close all open banks as early as possible."""
        self.repeat_row("precharge")

    def drawn_banks(self, wanted: frozenset[int]) -> frozenset[int]:
        """Select random banks: one, two, some, a group, a parity, all, none; mostly legal."""
        rng, banks = self.rng, self.p.banks
        pool = sorted(wanted if wanted and rng.random() < 0.85 else self.all)
        size = banks // BANK_GROUPS
        number = int(rng.choice(pool))
        match int(rng.choice(7, p=(0.45, 0.2, 0.1, 0.07, 0.07, 0.07, 0.04))):
            case 0:
                return frozenset({number})
            case 1:
                return frozenset({number, int(rng.choice(pool))})
            case 2:
                return frozenset(bank for bank in pool if rng.random() < 0.5)
            case 3:
                group = number // size
                return frozenset(range(group * size, (group + 1) * size))
            case 4:
                return frozenset(range(number % 2, banks, 2))
            case 5:
                return frozenset(pool)
            case _:
                return frozenset()

    def drawn_row(self) -> Command | None:
        """Generate a row command or none."""
        kinds = ("activate", "precharge", "refresh", "refresh_bank", "")
        kind = kinds[int(self.rng.choice(5, p=(0.4, 0.34, 0.04, 0.1, 0.12)))]
        if kind in ("", "refresh"):
            return (kind, self.all) if kind else None
        wanted = self.open if kind == "precharge" else self.all - self.open
        if kind == "refresh_bank":
            pool = sorted(wanted if wanted and self.rng.random() < 0.85 else self.all)
            return kind, frozenset({int(self.rng.choice(pool))})
        return kind, self.drawn_banks(wanted)

    def drawn_column(self, share: float = 0.85) -> Command | None:
        """Generate a column command, or none according to its share."""
        kind = ("read", "write")[int(self.rng.integers(2))]
        return (kind, self.drawn_banks(self.open)) if self.rng.random() < share else None


def drawn_trace(p: BankTimingParameters, rng: np.random.Generator, count: int) -> BankTrace:
    """Generate commands on both buses; most are repeated until they are legal, some are aborted.

    Occasionally all banks close and refresh, and one of them opens as early as possible.
    """
    trace = BankTrace(p, rng)
    row = column = None
    due: deque[Command] = deque()
    while len(trace.rows) < count:
        if not due and rng.random() < 0.015:
            one = frozenset({int(rng.integers(p.banks))})
            due += [("precharge", trace.all), ("refresh", trace.all), ("activate", one)]
        if due:
            row = due[0]
        elif row is None or rng.random() < 0.1:
            row = trace.drawn_row()
        if column is None or rng.random() < 0.1:
            # Column commands delay precharges, so there are fewer when all banks are to close.
            column = trace.drawn_column(0.1 if due else 0.85)
        verdict = trace.send(row, column)
        if verdict.row:
            row = None
            if due:
                due.popleft()
        column = None if verdict.column else column
        # Another command may have opened or closed the bank: abort a command that cannot become
        # legal.
        if due and due[0][0] == "activate" and due[0][1] & trace.open:
            due.clear()
    return trace


def bank_by_bank_trace(p: BankTimingParameters, rng: np.random.Generator, most: int) -> BankTrace:
    """Use each bank alone in every manner, and repeat each next command until it is legal.

    Parameters
    ----------
    p : BankTimingParameters
        Number of banks and their times.
    rng : numpy.random.Generator
        Source of the random order of the banks.
    most : int
        Maximum number of delays between an activate and a column command.
    """
    trace = BankTrace(p, rng)
    for bank in rng.permutation(p.banks):
        one = frozenset({int(bank)})
        # The first bank to open after a refresh changes each time, and so does the last to close.
        trace.repeat_row("refresh")
        trace.repeat_row("refresh")
        trace.repeat_row("activate", one)
        trace.repeat_row("precharge", one)
        trace.repeat_row("refresh_bank", one)
        trace.repeat_row("activate", one)
        trace.repeat_row("precharge", one)
        trace.repeat_row("refresh")
        pauses = rng.permutation(p.ras + 1)[:most]
        for kind in ("read", "write"):
            for pause in pauses:
                trace.repeat_row("activate", one)
                trace.wait(p.rcd - 1 + int(pause))
                trace.repeat_column(kind, one)
                trace.repeat_row("precharge", one)
        # A column command never allows an earlier precharge, whatever delayed it before.
        for kinds in ((), ("write", "read"), ("read", "write"), ("write", "write")):
            trace.repeat_row("activate", one)
            for kind in kinds:
                trace.repeat_column(kind, one)
            trace.repeat_row("precharge", one)
        _close_in_use(trace, one)
    return trace


def _close_in_use(trace: BankTrace, one: frozenset[int]) -> None:
    """Close a bank in the cycle in which it is used, and others together with one that is used."""
    p = trace.p
    others = trace.all - one
    trace.repeat_row("activate")
    trace.wait(p.ras)
    for kind in ("read", "write"):
        trace.send(("precharge", one), (kind, one))
        trace.wait(max(p.rtp, p.wr, p.ccd_l, p.wtr))
    for bank in sorted(others):
        # Other banks in the command do not mask the violation.
        trace.send(("precharge", frozenset({bank}) | one), ("read", one))
        trace.wait(max(p.rtp, p.ccd_l))
    trace.send(("precharge", others), ("read", one))
    trace.close_all()


def pairs_trace(p: BankTimingParameters, rng: np.random.Generator) -> BankTrace:
    """Use, open and close each bank after each other one, as early as possible."""
    trace = BankTrace(p, rng)
    trace.repeat_row("activate")
    for first in range(p.banks):
        for second in rng.permutation(p.banks):
            one, other = frozenset({first}), frozenset({int(second)})
            for kinds in (("read", "read"), ("write", "read"), ("read", "write")):
                trace.repeat_column(kinds[0], one)
                trace.repeat_column(kinds[1], other)
    trace.close_all()
    trace.wait(p.rp)
    for first in range(p.banks):
        one = frozenset({first})
        other = frozenset({int(rng.choice(sorted(trace.all - one)))})
        trace.repeat_row("activate", one)
        trace.repeat_row("activate", other)
        # If two banks close, both must be ready; a closed bank requires nothing.
        trace.repeat_row("precharge", one | other)
        trace.repeat_row("precharge", one)
        trace.repeat_row("activate", one | other)
        trace.send(None, ("read", trace.all))
        trace.repeat_row("precharge", one | other)
    return trace


def refresh_trace(p: BankTimingParameters, rng: np.random.Generator, late: int) -> BankTrace:
    """Refresh in the last cycle before it is overdue, one cycle later, and much later."""
    trace = BankTrace(p, rng)
    limit = p.longest_gap
    for behind in (0, 1, late):
        while trace.model.cycle - trace.model.refreshed < limit + behind - 1 - p.ras - p.rp:
            trace.send()
        trace.send(("activate", frozenset({int(rng.integers(p.banks))})))
        while trace.model.cycle - trace.model.refreshed < limit + behind - p.rp:
            # With an open bank no refresh is legal.
            trace.send(("refresh", trace.all))
        trace.close_all()
        while trace.model.cycle - trace.model.refreshed < limit + behind:
            trace.send()
        trace.repeat_row("refresh")
    return trace


def set_trace(p: BankTimingParameters, rng: np.random.Generator) -> BankTrace:
    """Refresh single banks as early as possible, in random orders, with activates in between."""
    trace = BankTrace(p, rng)
    for ends_early in (False, True, False, False):
        order = [frozenset({int(bank)}) for bank in rng.permutation(p.banks)]
        opened: frozenset[int] | None = None
        for number, one in enumerate(order):
            trace.repeat_row("refresh_bank", one)
            if opened:
                trace.repeat_row("precharge", opened)
                opened = None
            if number + 1 < p.banks:
                # Illegal until the set is complete, however long it waits.
                again = order[int(rng.integers(number + 1))]
                for _ in range(int(rng.integers(2)) * (1 + p.rfcsb)):
                    trace.send(("refresh_bank", again))
            if ends_early and number == p.banks // 2:
                # A refresh of all banks ends the set: the next one begins with any bank.
                trace.repeat_row("refresh")
                break
            if number + 2 < p.banks and rng.random() < 0.5:
                opened = order[int(rng.integers(number + 2, p.banks))]
                trace.repeat_row("activate", opened)
                trace.send(("refresh_bank", opened))
    return trace


def product_traces(p: BankTimingParameters, rng: np.random.Generator) -> BankTrace:
    """Return the commands of SmolLM2's products on the compute units."""
    pumps = min(p.ccd_l, 2)
    unit = PimComputeUnitParameters(pumps=pumps)
    if p.banks < 16:
        unit = PimComputeUnitParameters(pumps=pumps, elements=4, steps=4)
    channel = PimChannelParameters(unit=unit, timing=p)
    trace = BankTrace(p, rng)
    for mode in ("linear", "keys", "values"):
        product = product_trace(channel, mode)
        model = Channel(channel, product.memory)
        model.run(product.slots)
        for issued in model.issued:
            given: dict[bool, Command] = {}
            for kind, banks in issued.items():
                given[kind in ("read", "write")] = (kind, banks)
            trace.send(given.get(False), given.get(True))
        for kind, pause in (("", max(p.ras, p.wr)), ("precharge", p.rp), ("refresh", p.rfc)):
            trace.send((kind, trace.all) if kind else None)
            trace.wait(pause - 1)
    return trace
