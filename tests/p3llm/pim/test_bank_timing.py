"""The banks' rules: proved against ages instead of counters, and their times from nanoseconds."""

import re
from dataclasses import fields, replace

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value

from golden.p3llm.pim.bank_timing import (
    PICOSECONDS,
    POSTPONED,
    Event,
    RuleChecker,
    Verdicts,
)
from hdl.p3llm.pim.bank_timing import BankTiming, BankTimingParameters, RowOperation
from testbenches.formal import AnySeq, Assert, prove

TINY = BankTimingParameters(
    banks=4,
    rcd_ps=4_000,
    rp_ps=4_000,
    ras_ps=10_000,
    ccd_l_ps=4_000,
    rtp_ps=2_000,
    wr_ps=6_000,
    wtr_ps=4_000,
    rrd_ps=4_000,
    rfc_ps=8_000,
    refi_ps=200_000,
    rfcsb_ps=10_000,
    rrefd_ps=6_000,
)
PICOSECOND_MHZ = 1_000_000
"""Clock whose cycle is a picosecond, so that times of a checker are cycles."""
OLD = 7
"""Older than any time of these."""


class Rules(Elaboratable):
    """Every command of every sequence is legal exactly if the ages of earlier ones allow it."""

    def __init__(self, p: BankTimingParameters) -> None:
        self.p = p

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.p
        m.submodules.unit = unit = BankTiming(parameters=p)
        row, column = unit.row, unit.column
        operation = Signal(2)
        m.d.comb += [
            operation.eq(AnySeq(2)),
            row.valid.eq(AnySeq(1)),
            row.operation.eq(operation),
            row.banks.eq(AnySeq(p.banks)),
            column.valid.eq(AnySeq(1)),
            column.write.eq(AnySeq(1)),
            column.banks.eq(AnySeq(p.banks)),
        ]
        kinds = {one: row.valid & (operation == one.value) for one in RowOperation}

        def age(name: str, happens: Value) -> Signal:
            """Return the cycles since something happened, at most `OLD`."""
            cycles_ = Signal(range(OLD + 1), name=name, init=OLD)
            m.d.sync += cycles_.eq(Mux(happens, 1, Mux(cycles_ == OLD, OLD, cycles_ + 1)))
            return cycles_

        row_done, column_done = unit.row_legal, unit.column_legal
        refreshed = age("refreshed", row_done & kinds[RowOperation.REFRESH])
        activated = age("activated", row_done & kinds[RowOperation.ACTIVATE])
        written = age("written", column_done & column.write)
        accessed = age("accessed", column_done)
        rows_wrong, columns_wrong = [], [column.valid & ~column.write & (written < p.wtr)]
        columns_wrong.append(column.valid & (accessed < p.ccd_s))
        of_one = kinds[RowOperation.REFRESH_BANK]
        refreshed_one = age("refreshed_one", row_done & of_one)
        spaced = kinds[RowOperation.ACTIVATE] | of_one
        rows_wrong.append(spaced & ((activated < p.rrd) | (refreshed_one < p.rrefd)))
        # The banks of the set: those refreshed since a refresh of all, or since all of them were.
        in_set = [Signal(name=f"in_set_{bank}") for bank in range(p.banks)]
        joined = Cat(in_set) | Mux(row_done & of_one, row.banks, 0)
        ends = (row_done & kinds[RowOperation.REFRESH]) | joined.all()
        m.d.sync += Cat(in_set).eq(Mux(ends, 0, joined))
        rows_wrong.append(of_one & (row.banks & Cat(in_set)).any())
        for bank in range(p.banks):
            mine, used = row.banks[bank], column.banks[bank]
            opened = Signal(name=f"open_{bank}")
            opens = row_done & kinds[RowOperation.ACTIVATE] & mine
            closes = row_done & kinds[RowOperation.PRECHARGE] & mine & opened
            m.d.sync += opened.eq((opened | opens) & ~closes)
            of_activate = age(f"of_activate_{bank}", opens)
            of_precharge = age(f"of_precharge_{bank}", closes)
            of_read = age(f"of_read_{bank}", column_done & used & ~column.write)
            of_write = age(f"of_write_{bank}", column_done & used & column.write)
            # With four banks every bank is a group of its own.
            of_column = age(f"of_column_{bank}", column_done & used)
            refreshed_here = age(f"refreshed_{bank}", row_done & of_one & mine)
            begins = (spaced & mine) | kinds[RowOperation.REFRESH]
            rows_wrong += [
                begins & opened,
                begins & ((of_precharge < p.rp) | (refreshed < p.rfc) | (refreshed_here < p.rfcsb)),
                kinds[RowOperation.PRECHARGE]
                & mine
                & opened
                & ((of_activate < p.ras) | (of_read < p.rtp) | (of_write < p.wr)),
                kinds[RowOperation.PRECHARGE] & mine & column_done & used,
            ]
            columns_wrong += [
                column.valid & used & ~opened,
                column.valid & used & ((of_activate < p.rcd) | (of_column < p.ccd_l)),
            ]
        m.d.comb += [
            Assert(row_done == (row.valid & ~Cat(rows_wrong).any())),
            Assert(column_done == (column.valid & ~Cat(columns_wrong).any())),
        ]
        return m


@pytest.mark.parametrize("p", [TINY, replace(TINY, ccd_s_ps=4_000, ccd_l_ps=6_000)])
def test_exactly_the_legal_sequences_are_accepted(p: BankTimingParameters) -> None:
    """All sequences of seven cycles from a reset, at tiny times."""
    prove(Rules(p), inputs=[], depth=7, induction=False)


def test_times_are_those_of_the_data_sheet() -> None:
    p = BankTimingParameters()
    assert {one.name for one in fields(p)} - {"banks", "clock_mhz"} == {
        f"{name}_ps" for name in PICOSECONDS
    }
    assert RuleChecker.of(p).times == PICOSECONDS


@pytest.mark.parametrize("clock_mhz", [100, 300, 333, 500, 750, 999, 1000, 1733, 2000])
def test_cycles_are_the_fewest_that_the_data_sheet_allows(clock_mhz: int) -> None:
    """Each minimum has passed after its cycles and not before; refreshes are not later."""
    p = BankTimingParameters(clock_mhz=clock_mhz)
    checker = RuleChecker.of(p)
    for name in PICOSECONDS.keys() - {"refi"}:
        count = getattr(p, name)
        assert checker.passed(count, name) and not checker.passed(count - 1, name), name
    assert p.refi == PICOSECONDS["refi"] * clock_mhz // 1_000_000
    assert checker.overdue(p.longest_gap + 1) and not checker.overdue(p.longest_gap)


def test_cycles_at_500_and_1000_mhz() -> None:
    """Counted by hand from nanoseconds: 2 and 1 ns per cycle."""
    names = ("rcd", "rp", "ras", "ccd_s", "ccd_l", "rtp", "wr", "wtr", "rrd", "rfc", "refi")
    names += ("rfcsb", "rrefd")
    for clock_mhz, expected in (
        (500, [7, 7, 17, 1, 2, 3, 8, 4, 2, 130, 1950, 80, 4]),
        (1000, [14, 14, 33, 2, 4, 5, 16, 8, 4, 260, 3900, 160, 8]),
    ):
        p = BankTimingParameters(clock_mhz=clock_mhz)
        assert [getattr(p, name) for name in names] == expected


def test_judge_knows_textbook_traces() -> None:
    """Activate, read, precharge, activate, as early as possible, and each one cycle earlier."""
    p = BankTimingParameters()
    times = {name: getattr(p, name) for name in PICOSECONDS}
    one = frozenset({5})
    close = max(times["rcd"] + times["rtp"], times["ras"])
    textbook = [
        ("activate", 0, None),
        ("read", times["rcd"], "rcd"),
        ("precharge", close, "ras"),
        ("activate", close + times["rp"], "rp"),
    ]
    for early in range(1, len(textbook)):
        checker = RuleChecker(16)
        for kind, cycle, _says in textbook[:early]:
            assert checker.check([Event(cycle=cycle, kind=kind, banks=one)]) == set()
        kind, cycle, broken = textbook[early]
        assert checker.check([Event(cycle=cycle - 1, kind=kind, banks=one)]) == {broken}
        assert checker.check([Event(cycle=cycle, kind=kind, banks=one)]) == set()


def test_judge_knows_a_set_of_refreshes() -> None:
    """Banks 0 to 3 are 8 ns apart; each other rule is broken one cycle too early, at 500 MHz."""
    checker = RuleChecker(4)

    def at(cycle: int, kind: str, *banks: int) -> set[str]:
        return checker.check([Event(cycle=cycle, kind=kind, banks=frozenset(banks))])

    assert at(0, "refresh_bank", 0) == set()
    # tRREFD is 4 cycles, and a set has each bank once; tRFCSB is 80 cycles.
    assert at(3, "refresh_bank", 1) == {"rrd"}
    assert at(3, "activate", 2) == {"rrd"}
    assert at(4, "refresh_bank", 0) == {"refi", "rp"}
    assert at(4, "activate", 2) == set()
    # tRRD is 2 cycles.
    assert at(5, "refresh_bank", 1) == {"rrd"}
    assert at(6, "refresh_bank", 2) == {"opened"}
    assert at(6, "refresh_bank", 1) == set()
    assert at(21, "precharge", 2) == set()
    # tRP is 7 cycles.
    assert at(27, "refresh_bank", 2) == {"rp"}
    assert at(28, "refresh_bank", 2) == set()
    assert at(90, "refresh_bank", 1) == {"refi"}
    assert checker.refreshes == 0
    assert at(90, "refresh_bank", 3) == set()
    # The set is complete: the next one may begin with any bank whose tRFCSB has passed.
    assert checker.refreshes == 1
    assert at(94, "refresh_bank", 3) == {"rp"}
    assert at(94, "refresh_bank", 2) == {"rp"}
    assert at(94, "refresh_bank", 1) == set()
    # A refresh of all banks waits for the last one, and ends the set.
    assert at(173, "refresh", 0, 1, 2, 3) == {"rp"}
    assert at(174, "refresh", 0, 1, 2, 3) == set()
    assert checker.refreshes == 2
    assert at(303, "refresh_bank", 1) == {"rp"}
    assert at(304, "refresh_bank", 1) == set()


def test_a_command_for_no_bank_waits_for_no_bank() -> None:
    """It waits for common times only: activates of any bank, and reads after writes."""
    times = dict.fromkeys(PICOSECONDS, 5) | {"rrd": 2, "wtr": 2, "ccd_s": 1}
    for first, then, broken in (
        ("refresh", "activate", set()),
        ("activate", "precharge", set()),
        ("activate", "read", set()),
        ("activate", "activate", {"rrd"}),
        ("write", "read", {"wtr"}),
    ):
        checker = RuleChecker(4, times, PICOSECOND_MHZ)
        banks = frozenset(range(4) if first in ("refresh", "activate") else ())
        assert checker.check([Event(cycle=0, kind=first, banks=banks)]) == set()
        assert checker.check([Event(cycle=1, kind=then, banks=frozenset())]) == broken, (
            first,
            then,
        )


def test_verdicts_name_the_command_that_is_wrong() -> None:
    """A bank opens; a read and another activate are one cycle too early, then both are legal."""
    verdicts = Verdicts(
        RuleChecker(4, dict.fromkeys(PICOSECONDS, 3) | {"refi": 100, "ccd_s": 1}, PICOSECOND_MHZ)
    )
    one, other = frozenset({2}), frozenset({1})
    checked = [
        verdicts.pass_cycle(*commands)
        for commands in (
            (("activate", one), ("read", one)),
            (None, None),
            (("activate", other), ("read", one)),
            (("activate", other), ("read", one)),
            (("precharge", one), None),
            (("precharge", one), ("write", other)),
        )
    ]
    assert [(verdict.row, verdict.column, set(verdict.broken)) for verdict in checked] == [
        (True, False, {"closed"}),
        (False, False, set()),
        (False, False, {"rcd", "rrd"}),
        (True, True, set()),
        (False, False, {"ras"}),
        (False, False, {"ras", "rcd"}),
    ]


def test_a_refresh_is_late_after_nine_intervals() -> None:
    """Eight may be postponed: from the tenth interval on a refresh is overdue."""
    verdicts = Verdicts(
        RuleChecker(4, dict.fromkeys(PICOSECONDS, 2) | {"refi": 16}, PICOSECOND_MHZ)
    )
    everything = frozenset(range(4))
    late = []
    for cycle in range(3 * POSTPONED * 16):
        # A refresh that is illegal because a bank is open does not restart the interval.
        row = {5: "activate", 100: "refresh", 120: "precharge", 200: "refresh"}.get(cycle)
        verdict = verdicts.pass_cycle((row, everything) if row else None, None)
        assert verdict.row == (row is not None and cycle != 100)
        late += [cycle] if "refi" in verdict.broken else []
    assert late == [*range(144, 201), *range(345, 432)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"banks": 12}, "banks must be a power of two between 4 and 16, not 12"),
        ({"rfc_ps": 0}, "rfc_ps must be an integer from 1 to 1022000, not 0"),
        ({"clock_mhz": 2001}, "clock_mhz must be an integer from 100 to 2000, not 2001"),
        ({"ccd_l_ps": 1999}, "ccd_l_ps must be at least ccd_s_ps, 2000, not 1999"),
        (
            {"clock_mhz": 150, "refi_ps": 100_000},
            "refi_ps must be at least 106667 at clock_mhz=150, not 100000",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        BankTimingParameters(**change)
