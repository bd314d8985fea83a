"""Model of two-dimensional refresh: the words that each sweep refreshes, and their counts."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.systolic_evictor import Flags, Integers
from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings
from hdl.parameters import require


def high_group(scores: Integers, score_bits: int) -> Flags:
    """Return a flag for each coarse score of the high-score group: the upper half of the range."""
    return scores >= 1 << score_bits - 1


def better_half(scores: Integers | NDArray[np.float64], valid: Flags) -> Flags:
    """Return a flag for each entry of the exact upper half; ties resolve to the lowest entries."""
    rank = np.argsort(-scores[valid], kind="stable")
    high = np.zeros(len(scores), bool)
    high[np.flatnonzero(valid)[rank[: (len(rank) + 1) // 2]]] = True
    return high


class RefreshModel:
    """State of the refresh controllers between sweeps.

    Parameters
    ----------
    parameters : RefreshParameters
        Number of entries and words, and bits of scores.
    settings : RefreshSettings
        Intervals.

    Members
    -------
    scores, valid : numpy.ndarray
        Score of each entry, and whether it holds data.
    counts : numpy.ndarray
        int64 [2, 2], words refreshed: `[MSB, LSB][HST, LST]`.
    """

    def __init__(self, parameters: RefreshParameters, settings: RefreshSettings) -> None:
        self.parameters = parameters
        self.intervals = np.array(
            [[settings.msb_hst, settings.msb_lst], [settings.lsb_hst, settings.lsb_lst]]
        )
        self.scores = np.zeros(parameters.entries, np.int64)
        self.valid = np.zeros(parameters.entries, bool)
        self.was_hst = np.zeros((2, parameters.entries), bool)
        self.counts = np.zeros((2, 2), np.int64)
        self.ticks = 0

    def change(self, entry: int, score: int, valid: bool) -> None:
        """Store a new score of an entry."""
        self.scores[entry], self.valid[entry] = score, valid

    def tick(self) -> tuple[Integers, Integers]:
        """Pass one tick.

        Returns
        -------
        tuple[numpy.ndarray, numpy.ndarray]
            Addresses refreshed in the MSB banks and in the LSB banks, in order.
        """
        self.ticks += 1
        hst = high_group(self.scores, self.parameters.score_bits)
        words = np.arange(self.parameters.words)
        refreshed = []
        for half in range(2):
            for_hst, for_lst = self.ticks % self.intervals[half] == 0
            due = np.where(hst, for_hst, for_lst)
            if for_hst or for_lst:
                due |= hst != self.was_hst[half]
            due &= self.valid
            self.was_hst[half, due] = hst[due]
            self.counts[half] += len(words) * np.array(
                [np.count_nonzero(due & hst), np.count_nonzero(due & ~hst)]
            )
            entries = np.flatnonzero(due)
            refreshed.append((entries[:, np.newaxis] * len(words) + words).reshape(-1))
        return refreshed[0], refreshed[1]


def uniform_operations(ticks: int, tick_time: Fraction, interval: Fraction, words: int) -> Fraction:
    """Return the words that a sweep of all words every `interval` refreshes in some ticks."""
    require(interval > 0, "interval must be above 0", interval)
    return ticks * tick_time / interval * words


def flip_bits(
    values: NDArray[np.int64],
    hst: Flags,
    rates: NDArray[np.float64],
    rng: np.random.Generator,
) -> Integers:
    """Inject retention failures into 16-bit values: the error model of accuracy studies.

    Parameters
    ----------
    values : numpy.ndarray
        int64 [tokens, ...], two's complement of 16 bits.
    hst : numpy.ndarray
        bool [tokens], which tokens are in the high-score group.
    rates : numpy.ndarray
        float64 [2, 2], probability that a bit flips: `[MSB, LSB][HST, LST]`.
    rng : numpy.random.Generator
        Source of the flips.

    Returns
    -------
    numpy.ndarray
        The values with independent flips.
    """
    tokens = hst.reshape(-1, *[1] * (values.ndim - 1))
    flips = np.zeros_like(values)
    for bit in range(16):
        high, low = rates[0 if bit >= 8 else 1]
        flips |= (rng.random(values.shape) < np.where(tokens, high, low)).astype(np.int64) << bit
    words = (values & 0xFFFF) ^ flips
    return np.where(words >= 1 << 15, words - (1 << 16), words)
