"""Model of the slot table's arithmetic: the coarse score for the refresh controllers."""

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.systolic_evictor import Integers
from hdl.kelle.eviction.systolic_evictor import ScoreSource


def magnitude_bits(importance: NDArray[np.integer]) -> int:
    """Return the bits of the largest magnitude without sign; negative values are inverted."""
    folded = np.asarray(importance, np.int64)
    folded = np.where(folded < 0, ~folded, folded)
    return int(np.max(folded, initial=0)).bit_length()


def export_score(
    importance: NDArray[np.integer], bits: int, source: ScoreSource, score_bits: int
) -> Integers:
    """Return the most significant bits of importances, normalised by the running maximum.

    Sums of raw scores are signed and become offset binary, which preserves their order.

    Parameters
    ----------
    importance : numpy.ndarray
        Importance scores S.
    bits : int
        Bits of the largest magnitude so far, as `magnitude_bits` counts them.
    source : ScoreSource
        Scores that were accumulated.
    score_bits : int
        Bits to keep.
    """
    signed = source is ScoreSource.RAW
    top = 1 << score_bits
    shift = max(bits + signed - score_bits, 0)
    scaled = (np.asarray(importance, np.int64) >> shift) + (top >> 1 if signed else 0)
    return np.clip(scaled, 0, top - 1)
