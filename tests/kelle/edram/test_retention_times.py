"""Retention times: the paper's two facts, samples of the distribution, and the lost bits."""

from itertools import pairwise
from math import log

import numpy as np
import pytest

from golden.kelle.edram.retention_times import (
    PAPER_TIMES,
    RETENTIONS,
    Retention,
    RetentionTimes,
    flipped,
)
from hdl.kelle.edram.refresh_intervals import RefreshIntervals

pytestmark = pytest.mark.depends("kelle")

LONG = Retention(
    intervals=RefreshIntervals(hst_msb=20_000, lst_msb=40_000, hst_lsb=80_000, lst_lsb=160_000)
)
"""Intervals at which some percent of the bits are lost."""


def test_distribution_has_the_papers_two_facts() -> None:
    """One error in 4 MB at 45 us, and a mean of 2e-3 at the four intervals."""
    assert 8 * 4 * 2**20 * PAPER_TIMES.lost(45) == pytest.approx(1)
    groups = [PAPER_TIMES.lost(interval) for interval in (360, 1440, 5400, 7200)]
    assert np.mean(groups) == pytest.approx(2e-3)
    assert all(short < long for short, long in pairwise(groups))


def test_share_of_lost_cells_is_that_of_samples() -> None:
    """Retention times samples by numpy, at intervals with enough losses to count."""
    samples = np.random.default_rng(1).lognormal(
        log(PAPER_TIMES.median_us), PAPER_TIMES.sigma, 1 << 22
    )
    for interval in (5400, 20_000, 160_000):
        share = PAPER_TIMES.lost(interval)
        error = (share * (1 - share) / samples.size) ** 0.5
        assert abs(np.mean(samples < interval) - share) < 4 * error


def test_masks_lose_the_share_of_their_group() -> None:
    entries = np.stack([LONG.masks(entry, 64) for entry in range(200)])
    bits = (entries[..., np.newaxis] >> np.arange(16)) & 1
    for half, which in enumerate((slice(8, 16), slice(0, 8))):
        for group in range(2):
            found, rate = bits[:, group, ..., which], LONG.rates[half, group]
            error = (rate * (1 - rate) / found.size) ** 0.5
            assert abs(found.mean() - rate) < 4 * error
            # Each bit, and keys and values, lose their share.
            assert found.mean(axis=(0, 1, 2)).min() > 0.7 * rate
            assert found.mean(axis=(0, 2, 3)).min() > 0.7 * rate


def test_low_scores_lose_all_bits_that_high_scores_lose() -> None:
    high, low = LONG.masks(7, 64)
    assert not np.any(high & ~low) and np.any(low & ~high)


def test_cells_differ_by_entry_and_by_seed() -> None:
    own = LONG.masks(7, 64)
    assert np.array_equal(own, LONG.masks(7, 64))
    other = Retention(intervals=LONG.intervals, seed=2)
    for masks in (LONG.masks(8, 64), other.masks(7, 64)):
        assert np.any(masks != own)


def test_flipped_bits_are_those_of_the_mask() -> None:
    values = np.array([0, -1, 5, 32767])
    mask = np.array([1 << 15, 1, 0, 0x8000])
    assert flipped(values, mask).tolist() == [-32768, -2, 5, -1]


def test_each_pair_of_settings_refreshes_as_often() -> None:
    """One interval for all is rounded to whole us."""
    for name, own in RETENTIONS.items():
        other = RETENTIONS[name.replace("2drp", "uniform")]
        assert other.intervals.mean_us == pytest.approx(own.intervals.mean_us, rel=1e-3)
        assert len(set(other.intervals.all)) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"median_us": 0.0, "sigma": 1.0}, r"median_us must be above 0, not 0\.0"),
        ({"median_us": 1.0, "sigma": -1.0}, r"sigma must be above 0, not -1\.0"),
    ],
)
def test_distribution_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetentionTimes(**values)


def test_mean_below_the_first_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mean must be above 0\.01 and below 0\.5, not 0\.002"):
        RetentionTimes.through(0.01)


def test_seed_out_of_range() -> None:
    with pytest.raises(ValueError, match="seed must be an integer from 0 to 4294967295, not -1"):
        Retention(intervals=RefreshIntervals(), seed=-1)
