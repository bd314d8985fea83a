"""LAD's active position identification: float64 reference and bit-exact model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_values import values
from hdl.arith.float_format import BINARY16
from hdl.lad.interval_table import IntervalTable

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def exact_interval(difference: Any, table: IntervalTable) -> Integers:
    """Return the intervals of real differences: the number of lower bounds below them."""
    lowers = values(np.array(table.lowers))
    return np.sum(lowers < np.asarray(difference)[..., np.newaxis], axis=-1)


@dataclass(frozen=True)
class Identified:
    """Result of a step.

    Members
    -------
    active : array of bool [n]
        Positions whose score is outside the interval of their mode, and the latest ones (J).
    counts : array [n]
        Counts of the modes after the step (cnt).
    """

    active: Flags
    counts: Integers


def identify(
    scores: Any, maximum: Any, modes: Any, counts: Any, *, table: IntervalTable, recent: int
) -> Identified:
    """Return active positions and counts of a step of n positions, bit-exact.

    Parameters
    ----------
    scores, maximum : array [n], scalar
        FP16 codes of the scores and of max_s.
    modes, counts : array [n]
        Mode of each position, and the number of steps in which its score was in that interval.
    table : IntervalTable
        The intervals.
    recent : int
        Number of latest positions, which are always active.
    """
    scores, modes, counts = np.asarray(scores), np.asarray(modes), np.asarray(counts)
    difference = values(float_add(BINARY16, scores, np.full_like(scores, maximum), 1))
    modes = np.minimum(modes, table.intervals - 1)
    bounds = values(np.array(table.lowers))
    lower = np.concatenate([[-np.inf], bounds])[modes]
    upper = np.concatenate([bounds, [np.inf]])[modes]
    # Minus infinity is in the first interval, and a NaN in none.
    inside = ((difference > lower) | (modes == 0)) & (difference <= upper)
    late = np.arange(len(scores)) >= len(scores) - recent
    active = late | ~inside
    return Identified(active, np.minimum(counts + ~active, 4095))
