"""LAD's active positions: the truth in float64, and the bit-exact model."""

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
    """Return the interval of real differences: how many lower bounds are below them."""
    lowers = values(np.array(table.lowers))
    return np.sum(lowers < np.asarray(difference)[..., np.newaxis], axis=-1)


@dataclass(frozen=True)
class Identified:
    """What the module says of a step.

    Members
    -------
    active : array of bool [n]
        Positions whose score is not in their mode's interval, and the latest ones.
    counts : array [n]
        Counts behind the step.
    """

    active: Flags
    counts: Integers


def identify(
    scores: Any, maximum: Any, modes: Any, counts: Any, *, table: IntervalTable, recent: int
) -> Identified:
    """Return active positions and counts of a step of n positions, bit for bit as the hardware.

    Parameters
    ----------
    scores, maximum : array [n], scalar
        FP16 codes.
    modes, counts : array [n]
        Each position's mode, and how often its score was in that interval.
    table : IntervalTable
        The intervals.
    recent : int
        Latest positions, which are active whatever their scores.
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
