"""Model of the slot table's arithmetic: the coarse score that the refresh controllers see."""

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.systolic_evictor import Integers
from hdl.kelle.eviction.systolic_evictor import ScoreSource


def magnitude_bits(importance: NDArray[np.integer]) -> int:
    """Return the bits, without sign, of the largest magnitude: s needs one more than s ^ sign."""
    folded = np.asarray(importance, np.int64)
    folded = np.where(folded < 0, ~folded, folded)
    return int(np.max(folded, initial=0)).bit_length()


def export_score(
    importance: NDArray[np.integer], bits: int, source: ScoreSource, score_bits: int
) -> Integers:
    """Return the most significant bits of importances, normalised by the running maximum.

    Sums of raw scores have either sign: they become offset binary, so that their order is kept.

    Parameters
    ----------
    importance : numpy.ndarray
        Importance scores S.
    bits : int
        Bits of the largest magnitude so far, as `magnitude_bits` counts them.
    source : ScoreSource
        What was accumulated.
    score_bits : int
        Bits to keep.
    """
    signed = source is ScoreSource.RAW
    top = 1 << score_bits
    shift = max(bits + signed - score_bits, 0)
    scaled = (np.asarray(importance, np.int64) >> shift) + (top >> 1 if signed else 0)
    return np.clip(scaled, 0, top - 1)
