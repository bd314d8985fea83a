"""Bank scheduler: every command obeys the data sheet's rules, every column is in its row."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from golden.p3llm.pim.bank_timing import POSTPONED, Event, RefreshRule, RuleChecker
from hdl.p3llm.catalog import SHORT_TIMES
from hdl.p3llm.control.bank_scheduler import BankScheduler
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnitParameters

TINY = PimChannelParameters(
    unit=PimComputeUnitParameters(elements=4, steps=8),
    timing=SHORT_TIMES,
)
COLUMNS = 1 << COLUMN_BITS
KINDS = {
    RowOperation.ACTIVATE: "activate",
    RowOperation.PRECHARGE: "precharge",
    RowOperation.REFRESH: "refresh",
    RowOperation.REFRESH_BANK: "refresh_bank",
}


@dataclass(frozen=True)
class Column:
    """A request after a delay."""

    position: int
    multiply: bool = False
    all_units: bool = False
    write: bool = False
    ahead: bool = False
    unit: int = 0
    pause: int = 0


def swept(first: int, count: int) -> list[Column]:
    """Return a product's columns, back to back."""
    return [Column(first + i, multiply=True, all_units=True, ahead=True) for i in range(count)]


def drawn(count: int, units: int, seed: int) -> list[Column]:
    """Generate columns of one unit or all, near and far, reads and writes, with or without gaps."""
    rng = random.Random(seed)
    columns, position = [], 0
    for _ in range(count):
        position = rng.choice([position, position + 1, position ^ COLUMNS, rng.randrange(1 << 12)])
        all_units = rng.random() < 0.3
        columns.append(
            Column(
                position,
                multiply=all_units and rng.random() < 0.5,
                all_units=all_units,
                write=not all_units and rng.random() < 0.4,
                ahead=rng.random() < 0.5,
                unit=rng.randrange(units),
                pause=rng.choice([0, 0, 0, 1, 7]),
            )
        )
    return columns


class Arrays:
    """Model of the banks: legal commands and open rows by the data sheet."""

    def __init__(self, p: PimChannelParameters) -> None:
        self.p = p
        self.checker = RuleChecker.of(p.timing)
        self.refresh_rule = RefreshRule(self.checker)
        self.rows: dict[int, int] = {}
        # Cycles in which refreshes were completed, and how many were of all banks at once.
        self.refreshes: list[int] = []
        self.whole = 0

    def take(self, cycle: int, column: Column | None, row: tuple[str, int, int] | None) -> None:
        """Require that a cycle's commands are legal, and that the column is in its row."""
        events = []
        if column:
            number = column.position // COLUMNS
            side, wanted = (number + number // 16) % 2, number // 2
            banks = [2 * column.unit + side]
            if column.all_units:
                banks = list(range(side, self.p.timing.banks, 2))
            assert [self.rows.get(bank) for bank in banks] == [wanted] * len(banks), cycle
            kind = "write" if column.write else "read"
            events.append(Event(cycle=cycle, kind=kind, banks=frozenset(banks)))
        if row:
            kind, bank, number = row
            parity = range(bank % 2, self.p.timing.banks, 2)
            of_kind = {"refresh": range(self.p.timing.banks), "refresh_bank": [bank]}
            banks = of_kind.get(kind, parity)
            events.append(Event(cycle=cycle, kind=kind, banks=frozenset(banks)))
            if kind == "activate":
                self.rows |= dict.fromkeys(banks, number)
            if kind == "refresh":
                self.whole += 1
        before = self.checker.refreshes
        assert self.checker.check(events) == set(), f"cycle {cycle}: {events}"
        refreshed = self.checker.refreshes > before
        self.refreshes += [cycle] * refreshed
        assert not self.refresh_rule.pass_cycle(cycle, refreshes=refreshed), cycle


def run(
    p: PimChannelParameters, columns: list[Column], *, quiet: bool = False, coming: bool = False
) -> tuple[Arrays, list[int]]:
    """Request columns sequentially; return the banks, and the cycle of each acceptance.

    The cycles without a request are `quiet` or not, and the next one is known (`coming`) or not.
    """
    unit, arrays = BankScheduler(parameters=p), Arrays(p)
    taken: list[int] = []

    async def bench(ctx) -> None:
        cycle, waiting, before = 0, list(columns), None
        pause = 0
        while waiting or before:
            column = waiting[0] if waiting and not pause else None
            pause = max(pause - 1, 0)
            ctx.set(unit.column.valid, column is not None)
            ctx.set(unit.quiet, quiet)
            if coming and waiting:
                ctx.set(unit.coming.valid, 1)
                ctx.set(unit.coming.position, waiting[0].position)
            if column:
                for name in ("multiply", "all_units", "write", "ahead", "unit", "position"):
                    ctx.set(getattr(unit.column, name), getattr(column, name))
            done = bool(ctx.get(unit.taken))
            assert not done or column
            await ctx.tick()
            row = None
            if ctx.get(unit.row_command.valid):
                kind = KINDS[ctx.get(unit.row_command.operation)]
                row = (kind, ctx.get(unit.row_command.bank), ctx.get(unit.row_command.row))
            arrays.take(cycle, column if done else None, row)
            before = None
            if column and done:
                if column.multiply:
                    assert cycle % p.unit.pumps == p.unit.pumps - 1
                taken.append(cycle)
                pause = column.pause
                before = waiting.pop(0)
            cycle += 1
            assert cycle < 40 * len(columns) + 1000 + sum(one.pause for one in columns)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return arrays, taken


GIGAHERTZ = replace(TINY, timing=replace(SHORT_TIMES, clock_mhz=1000))


@pytest.mark.parametrize(
    "p", [TINY, PimChannelParameters(), GIGAHERTZ], ids=["tiny", "smollm2", "gigahertz"]
)
def test_a_product_waits_for_refreshes_alone(p: PimChannelParameters) -> None:
    """The next row is open in time, so that all columns are tCCD_L apart within a run of rows."""
    rows = 60
    arrays, taken = run(p, swept(5, rows * COLUMNS))
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    timing = p.timing
    # Both parities close, the second as early as possible; one opens before the next column.
    longest = timing.ras + timing.rp + timing.rfc + timing.rcd + 2 * timing.rrd + 4
    # Rows 15 and 16, 31 and 32, ... are in the same banks.
    runs = rows // 16
    waits = [gap for gap in gaps if gap != p.column_cycles]
    assert len(waits) <= 2 * len(arrays.refreshes) + runs
    change = longest - timing.rfc
    assert sum(waits) <= len(arrays.refreshes) * longest + runs * change
    # As many as possible are postponed, and each further one is issued within its interval.
    intervals = taken[-1] // timing.refi
    assert len(arrays.refreshes) >= max(0, intervals - (POSTPONED - 2))


def test_refreshes_of_a_parity_delay_no_column() -> None:
    """Every second run, a product pays for a change of rows in the same banks and nothing else."""
    p = PimChannelParameters()
    timing, rows = p.timing, 84
    arrays, taken = run(p, swept(0, rows * COLUMNS))
    # The second and the third row change in which a refresh is owed, and the two after them.
    assert len(arrays.refreshes) == 2 and not arrays.whole
    change = timing.rtp + timing.rp + timing.rcd
    change += change % p.unit.pumps
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    late = {number: gap for number, gap in enumerate(gaps) if gap != p.column_cycles}
    ends = range(16 * COLUMNS - 1, rows * COLUMNS - 1, 16 * COLUMNS)
    assert late == dict.fromkeys(ends, change)


def test_refreshes_in_quiet_cycles_delay_no_column() -> None:
    """Pauses hold all refreshes that are owed: columns are as early as without refreshes."""
    p, timing, columns = TINY, TINY.timing, []
    for number in range(6):
        columns += swept(number * 20 * COLUMNS, 20 * COLUMNS)
        pause = 10 * (timing.ras + timing.rp + timing.rfc)
        columns[-1] = replace(columns[-1], pause=pause)
    arrays, taken = run(p, columns, quiet=True)
    gaps = Counter(later - earlier for earlier, later in pairwise(taken))
    assert len(arrays.refreshes) >= taken[-2] // timing.refi - POSTPONED
    # The first row after a pause is opened by its first request, and the second one of two rows in
    # the same banks after the first one. Row 80 is both.
    assert sum(gap > p.column_cycles for gap in gaps.elements()) == 5 + 120 // 16 - 1, gaps
    assert max(gaps) > pause
    _, eager = run(p, columns)
    assert eager[-1] - taken[-1] > (timing.rfc + timing.rp) * 5


def test_the_row_of_the_next_request_is_open_in_time() -> None:
    """After a pause that suffices to open it, a column is taken in the cycle of its request."""
    p, timing = TINY, TINY.timing
    pause = timing.ras + timing.rp + timing.rcd + 2
    # Rows of both parities: the same parity as the last one, and the other one.
    places = [0, 7, 4, 9, 5, 1]
    columns = [Column(place * COLUMNS, all_units=True, pause=pause) for place in places]
    for coming in (False, True):
        _, taken = run(p, columns, coming=coming)
        gaps = [later - earlier for earlier, later in pairwise(taken)]
        late = [gap - pause - 1 for gap in gaps]
        assert late == [0] * len(late) if coming else min(late) >= timing.rcd


def test_a_request_ends_quiet_cycles() -> None:
    """With requests in all cycles nothing is quiet: refreshes are postponed as long as allowed."""
    columns = swept(0, 60 * COLUMNS)
    noisy, taken = run(TINY, columns)
    quiet, also_taken = run(TINY, columns, quiet=True)
    assert (noisy.refreshes, taken) == (quiet.refreshes, also_taken)


@pytest.mark.parametrize("p", [TINY, GIGAHERTZ], ids=["tiny", "gigahertz"])
@pytest.mark.parametrize("seed", range(4))
def test_any_columns_are_legal(p: PimChannelParameters, seed: int) -> None:
    """Jumps, writes before reads, single units: possibly late, but always legal."""
    arrays, taken = run(p, drawn(400, p.units, seed), quiet=seed % 2 > 0, coming=seed > 1)
    assert len(taken) == 400
    assert arrays.refreshes
