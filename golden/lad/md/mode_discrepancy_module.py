"""LAD's mode discrepancy: the truth in float64, and the bit-exact model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import values
from golden.lad.vpu.vector_processing_unit import dot_product
from hdl.arith.float_format import BINARY16
from hdl.lad.interval_table import IntervalTable

Codes = NDArray[np.uint16]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
HIGHEST_COUNT = 4095


@dataclass(frozen=True)
class Positions:
    """Active positions [n] before a step.

    Members
    -------
    mode, count : array [n]
        The mode, and how often the score was there.
    counters : array [n, intervals]
        How often it was in each interval; the mode's is not looked at.
    recent, graduates : array of bool [n]
        Whether it is in no cache yet, and whether it comes in with this step.
    """

    mode: Integers
    count: Integers
    counters: Integers
    recent: Flags
    graduates: Flags


@dataclass(frozen=True)
class Discrepancies:
    """The same positions behind it, and their coefficients, as FP16 codes.

    Members
    -------
    score, alpha_score, alpha, beta : array [n]
        The exact score, and the differences between its interval's line and the mode's.
    interval, mode, count : array [n]
        Where the score is; the mode and its count from now on.
    counters : array [n, intervals]
        All counts.
    update : array of bool [n]
        Whether the caches follow.
    """

    score: Codes
    alpha_score: Codes
    alpha: Codes
    beta: Codes
    interval: Integers
    mode: Integers
    count: Integers
    counters: Integers
    update: Flags


def discrepancies(
    query: Any, keys: Any, maximum: int, before: Positions, *, table: IntervalTable
) -> Discrepancies:
    """Return what a step makes of its active positions, bit for bit as the hardware.

    Parameters
    ----------
    query, keys : array [head_size], [n, head_size]
        FP16 codes.
    maximum : int
        FP16 code.
    before : Positions
        The positions.
    table : IntervalTable
        Intervals and lines.
    """
    score = dot_product(np.asarray(query), np.asarray(keys))
    difference = values(float_add(BINARY16, score, np.full_like(score, maximum), 1))
    interval = np.sum(values(np.array(table.lowers)) < difference[:, np.newaxis], axis=-1)
    top = table.intervals - 1
    mode = np.where(before.recent, 0, np.minimum(before.mode, top))
    rows = np.arange(len(score))
    counters = before.counters.copy()
    kept = ~before.recent
    counters[rows[kept], mode[kept]] = before.count[kept]
    standard = counters[rows, mode]
    counted = np.minimum(counters[rows, interval] + 1, HIGHEST_COUNT)
    counters[rows, interval] = counted
    # Its own interval cannot overtake a mode.
    overtakes = kept & (interval != mode) & (counted > standard)
    update = before.graduates | overtakes
    new_mode = np.where(update, interval, mode)
    count = np.where(before.recent & ~before.graduates, 0, counters[rows, new_mode])

    def difference_of(line: tuple[int, ...]) -> Codes:
        codes = np.array(line)
        return float_add(BINARY16, codes[interval], codes[mode], 1).astype(np.uint16)

    alpha, beta = difference_of(table.a), difference_of(table.b)
    product = float_multiply(BINARY16, alpha, score).astype(np.uint16)
    return Discrepancies(score, product, alpha, beta, interval, new_mode, count, counters, update)
