"""Rows, banks and refresh of the memory, with bursts whose timing is computed by hand."""

from testbenches.veda.hbm_timing import (
    BANKS,
    LATENCY,
    LINES_OF_A_ROW,
    PRECHARGE,
    REFRESH,
    REFRESH_INTERVAL,
    ROW_CYCLE,
    ROW_TO_COLUMN,
    HbmTiming,
)

FAR = PRECHARGE + REFRESH


def test_rows_in_other_banks_follow_without_idle_cycles() -> None:
    start = FAR + 100
    times = HbmTiming().burst(0, BANKS * LINES_OF_A_ROW, start)
    first = start + ROW_TO_COLUMN + LATENCY
    assert times == list(range(first, first + len(times)))


def test_next_row_of_a_bank_waits_for_its_row_cycle() -> None:
    timing, start = HbmTiming(), FAR + 100
    (one,) = timing.burst(0, 1, start)
    (other,) = timing.burst(BANKS * LINES_OF_A_ROW, 1, start + 1)
    assert other - one == ROW_CYCLE


def test_no_data_during_a_refresh() -> None:
    times = HbmTiming().burst(0, 3 * REFRESH_INTERVAL, FAR)
    assert all(time % REFRESH_INTERVAL >= FAR for time in times)
    # A refresh takes its own time, plus the time to reopen the rows that it closes.
    span = times[-1] - times[0] + 1
    assert span - len(times) == 3 * (FAR + ROW_TO_COLUMN)
