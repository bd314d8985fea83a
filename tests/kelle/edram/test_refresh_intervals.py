"""Refresh intervals: ticks at a clock, and equal numbers of refreshes."""

import numpy as np
import pytest

from golden.kelle.edram.refresh_controller import RefreshModel
from hdl.kelle.edram.refresh_intervals import TABLE_4, RefreshIntervals
from hdl.kelle.edram.refresh_walker import RefreshParameters

pytestmark = pytest.mark.depends("kelle")

P = RefreshParameters(entries=64, words=1)


@pytest.mark.parametrize("clock", [100, 336, 788, 945, 1000, 2500])
@pytest.mark.parametrize("name", [540, 1050, 2062])
@pytest.mark.parametrize("uniform", [False, True])
def test_settings_have_the_intervals_at_any_clock(clock: int, name: int, uniform: bool) -> None:
    """No interval is exceeded, and none is shorter by more than a cycle per tick."""
    own = TABLE_4[name].uniform() if uniform else TABLE_4[name]
    s = own.settings(P, clock_mhz=clock)
    ticks = (s.msb_hst, s.msb_lst, s.lsb_hst, s.lsb_lst)
    for count, interval in zip(ticks, own.all, strict=True):
        assert 0 <= interval * clock - count * s.tick_cycles < count


def test_a_clock_is_not_hidden() -> None:
    """360,000 cycles are 0.36 ms at 1 GHz only."""
    cycles = {
        clock: RefreshIntervals().settings(P, clock_mhz=clock).tick_cycles
        for clock in (336, 788, 1000)
    }
    assert cycles == {336: 120_960, 788: 283_680, 1000: 360_000}


def test_one_interval_refreshes_as_many_words() -> None:
    """Words that the model of the controllers refreshes in the same time, of equal groups."""
    for both in TABLE_4.values():
        counts = []
        for own in (both, both.uniform()):
            s = own.settings(P, clock_mhz=1000)
            model = RefreshModel(P, s)
            for entry in range(P.entries):
                model.change(entry, 15 * (entry % 2), True)
            # Long enough that partial intervals at the end do not matter.
            for _ in range(round(2e9 / s.tick_cycles)):
                model.tick()
            counts.append(int(model.counts.sum()))
        assert counts[1] == pytest.approx(counts[0], rel=2e-3)


@pytest.mark.parametrize(
    ("intervals", "clock", "message"),
    [
        ({"hst_msb": 0}, 1000, "hst_msb must be an integer from 1 to 1000000, not 0"),
        ({}, 0, "clock_mhz must be an integer from 1 to 10000, not 0"),
        ({"lst_lsb": 7201}, 1000, "intervals of 7201 us at 1000 MHz must have less than 32 ticks"),
        ({}, 5000, r"less than 32 ticks of at most 1048575 cycles, not 40"),
        ({"hst_msb": 2880}, 1000, "msb_hst must be at most msb_lst = 4, not 8"),
    ],
)
def test_intervals_that_cannot_be_counted(
    intervals: dict[str, int], clock: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RefreshIntervals(**intervals).settings(P, clock_mhz=clock)


def test_a_tick_shorter_than_a_sweep_is_refused() -> None:
    large = RefreshParameters(entries=8192)
    with pytest.raises(ValueError, match="tick_cycles must be at least"):
        RefreshIntervals().settings(large, clock_mhz=40)


def test_means_are_those_of_table_4() -> None:
    means = np.array([own.mean_us for own in TABLE_4.values()])
    assert np.abs(means / list(TABLE_4) - 1).max() < 0.004
