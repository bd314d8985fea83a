"""Retention times of the eDRAM's cells, and the bits that a refresh interval loses.

The paper plots the share of cells that have lost their bit over the refresh interval (Figure 4, for
65 nm at 105 degrees Celsius, from Kong et al., "Analysis of Retention Time Distribution of Embedded
DRAM", ITC 2008) without numbers. A cell's retention time is inversely proportional to its leakage
current, which depends exponentially on its threshold voltage. That voltage is normally distributed
over the cells, so the retention time is lognormal. A lognormal distribution has two parameters, and
the paper states two facts:

- An interval of 45 us loses no data (Sections 3.2 and 8.3.3). Of the 2**25 bits of 4 MB, the model
  expects one to be lost.
- The four intervals of Section 7.1 have a mean failure rate of 2e-3.
"""

from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from hdl.kelle.edram.refresh_intervals import TABLE_4, RefreshIntervals
from hdl.parameters import require, require_range

SAFE_US, SAFE_SHARE = 45, 2.0**-25
"""The interval that loses no data: one expected error in 4 MB."""
MEAN_RATE = 2e-3
"""Mean failure rate of the paper's four intervals (Section 7.1)."""
BITS, LOW_BITS = 16, 8
"""Bits of a value, and those in the LSB banks."""
UNIT = 2.0**-53
"""Step of the random numbers."""


@dataclass(frozen=True, kw_only=True)
class RetentionTimes:
    """A lognormal distribution of the cells' retention times.

    Parameters
    ----------
    median_us : float
        Median in us.
    sigma : float
        Standard deviation of the natural logarithm.

    Raises
    ------
    ValueError
        If a value is not positive.
    """

    median_us: float
    sigma: float

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("median_us", "sigma"):
            require(getattr(self, name) > 0, f"{name} must be above 0", getattr(self, name))

    def lost(self, interval_us: float) -> float:
        """Return the share of cells that lose their bit within an interval."""
        return NormalDist(log(self.median_us), self.sigma).cdf(log(interval_us))

    @classmethod
    def through(cls, share: float = SAFE_SHARE, mean: float = MEAN_RATE) -> "RetentionTimes":
        """Return the distribution through a share at 45 us and a mean share of the paper's groups.

        Raises
        ------
        ValueError
            If the mean is not above the share, or not below one half.
        """
        require(share < mean < 0.5, f"mean must be above {share} and below 0.5", mean)
        intervals = RefreshIntervals().all

        def with_sigma(sigma: float) -> RetentionTimes:
            logarithm = log(SAFE_US) - sigma * NormalDist().inv_cdf(share)
            return cls(median_us=exp(logarithm), sigma=sigma)

        # A wider distribution through the same point loses fewer bits at longer intervals.
        low, high = 0.01, 100.0
        for _ in range(200):
            middle = (low + high) / 2
            found = with_sigma(middle)
            more = fmean(found.lost(interval) for interval in intervals) > mean
            low, high = (middle, high) if more else (low, middle)
        return with_sigma(high)


PAPER_TIMES = RetentionTimes.through()
"""The distribution through the paper's two facts."""

Masks = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Which bits of the eDRAM's entries are lost.

    A cell has one retention time, a function of its place. It has lost its bit whenever its group's
    interval is longer: reads then return the inverse of the bit that was written.

    Parameters
    ----------
    intervals : RefreshIntervals
        Refresh intervals of the groups.
    times : RetentionTimes
        Distribution of the retention times.
    seed : int
        Selects the cells' retention times.

    Raises
    ------
    ValueError
        If the seed is out of range.
    """

    intervals: RefreshIntervals
    times: RetentionTimes = PAPER_TIMES
    seed: int = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("seed", self.seed, 0, (1 << 32) - 1)

    @cached_property
    def rates(self) -> NDArray[np.float64]:
        """Share of lost bits, `[MSB, LSB][HST, LST]`."""
        own = self.intervals
        groups = ((own.hst_msb, own.lst_msb), (own.hst_lsb, own.lst_lsb))
        return np.array([[self.times.lost(interval) for interval in half] for half in groups])

    def masks(self, entry: int, channels: int) -> Masks:
        """Return the lost bits of an entry.

        Parameters
        ----------
        entry : int
            Number of the entry in the address map.
        channels : int
            Channels of a key.

        Returns
        -------
        numpy.ndarray
            int64 [2, 2, channels], `[HST, LST][key, value]`, as bits of 16-bit values. An entry of
            low-score tokens loses all bits that it loses as one of high-score tokens.
        """
        raw = np.random.Philox(key=self.seed << 32 | entry).random_raw(2 * channels * BITS)
        # The share of cells with shorter retention times than this cell.
        rank = (raw >> np.uint64(11)).reshape(2, channels, BITS) * UNIT
        msb = np.arange(BITS) >= LOW_BITS
        rates = np.where(msb, self.rates[0, :, np.newaxis], self.rates[1, :, np.newaxis])
        lost = rank < rates[:, np.newaxis, np.newaxis, :]
        return (lost.astype(np.int64) << np.arange(BITS)).sum(axis=-1)


RETENTIONS = {
    f"{kind}{suffix}": Retention(intervals=intervals if kind == "2drp" else intervals.uniform())
    for suffix, intervals in (("", TABLE_4[1050]), ("_540", TABLE_4[540]), ("_2062", TABLE_4[2062]))
    for kind in ("2drp", "uniform")
}
"""The values of RETENTION: the paper's intervals, and one interval with as many refreshes."""


def flipped(values: NDArray[np.int64], mask: Masks) -> NDArray[np.int64]:
    """Return 16-bit two's complement values with the bits of a mask inverted."""
    words = (values ^ mask) & 0xFFFF
    return np.where(words >= 1 << 15, words - (1 << 16), words)


def main() -> None:
    """Print the distribution and the rates of each setting."""
    print(f"median {PAPER_TIMES.median_us / 1000:.0f} ms, sigma {PAPER_TIMES.sigma:.3f}")
    print("| RETENTION | HST MSB | LST MSB | HST LSB | LST LSB | mean | refreshed as often as |")
    print("|---|---|---|---|---|---|---|")
    for name, own in RETENTIONS.items():
        cells = [*own.rates[0], *own.rates[1], own.rates.mean()]
        shares = " | ".join(f"{cell:.1e}" for cell in cells)
        print(f"| `{name}` | {shares} | {own.intervals.mean_us:.0f} us |")


if __name__ == "__main__":
    main()
