"""The memory's rows, banks and refresh, on bursts whose times can be counted by hand."""

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


def test_rows_in_other_banks_follow_without_a_gap() -> None:
    start = FAR + 100
    times = HbmTiming().burst(0, BANKS * LINES_OF_A_ROW, start)
    first = start + ROW_TO_COLUMN + LATENCY
    assert times == list(range(first, first + len(times)))


def test_a_bank_s_next_row_waits_for_its_cycle() -> None:
    timing, start = HbmTiming(), FAR + 100
    (one,) = timing.burst(0, 1, start)
    (other,) = timing.burst(BANKS * LINES_OF_A_ROW, 1, start + 1)
    assert other - one == ROW_CYCLE


def test_nothing_leaves_during_a_refresh() -> None:
    times = HbmTiming().burst(0, 3 * REFRESH_INTERVAL, FAR)
    assert all(time % REFRESH_INTERVAL >= FAR for time in times)
    # What a refresh costs: its own time, and the rows that it closes.
    span = times[-1] - times[0] + 1
    assert span - len(times) == 3 * (FAR + ROW_TO_COLUMN)
