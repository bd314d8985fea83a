"""Bit-exact model of the coarse scores: importances around the tracked median of their head."""

from dataclasses import dataclass

import numpy as np
from amaranth.utils import ceil_log2
from numpy.typing import NDArray

from hdl.kelle.eviction.eviction_parameters import EvictionParameters

Integers = NDArray[np.int64]


@dataclass
class HeadScores:
    """Centre and spread of one head's importances, both as of the previous search.

    Members
    -------
    centre : int
        Estimate of the median, which follows by one step per search.
    spread : int
        Bits of the mean distance from the centre.
    """

    parameters: EvictionParameters
    centre: int = 0
    spread: int = 0

    def coarse(self, importance: Integers) -> Integers:
        """Return the scores of importances, 0 to ``2**score_bits - 1``; saturated."""
        bits = self.parameters.score_bits
        half, shift = 1 << bits - 1, max(self.spread - bits, 0)
        return np.clip((importance - self.centre >> shift) + half, 0, 2 * half - 1)

    def learn(self, importance: Integers) -> None:
        """Move the centre towards the median of a search's importances, and set the spread."""
        evictor = self.parameters.evictor
        slot_bits = ceil_log2(evictor.slots)
        distance = importance - self.centre
        # A negative distance counts less 1, as an inversion of its bits gives it.
        total = int(np.where(distance < 0, ~distance, distance).sum())
        self.spread = max(total.bit_length() - slot_bits, 0)
        balance = 2 * int(np.count_nonzero(distance >= 0)) - len(distance)
        moved = self.centre + (balance << self.spread >> slot_bits + 1)
        largest = (1 << evictor.score_width - 1) - 1
        self.centre = min(max(moved, ~largest), largest)
