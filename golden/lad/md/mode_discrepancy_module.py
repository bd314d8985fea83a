"""LAD's mode discrepancy: float64 reference and bit-exact model."""

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
        The mode, and the number of steps in which the score was in it.
    counters : array [n, intervals]
        The same for each interval; the mode's counter is ignored.
    recent, graduates : array of bool [n]
        The position is in no cache yet; it enters the caches in this step.
    """

    mode: Integers
    count: Integers
    counters: Integers
    recent: Flags
    graduates: Flags


@dataclass(frozen=True)
class Discrepancies:
    """The same positions after the step, and their coefficients, as FP16 codes.

    Members
    -------
    score, alpha_score, alpha, beta : array [n]
        The exact score; the coefficients of its interval less those of the mode, alpha also times
        the score (`_a`).
    interval, mode, count : array [n]
        Interval of the score; the new mode and its count.
    counters : array [n, intervals]
        Counters of all intervals after the step.
    update : array of bool [n]
        The position is in U: it updates the caches.
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
    """Return the new state and the coefficients of a step's active positions, bit-exact.

    Parameters
    ----------
    query, keys : array [head_size], [n, head_size]
        FP16 codes.
    maximum : int
        FP16 code of max_s.
    before : Positions
        State of the positions before the step.
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
    # The mode's own counter cannot exceed itself.
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
