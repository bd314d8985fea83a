"""LAD's attention from intermediate caches: float64 reference and bit-exact model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_convert import float_convert
from golden.arith.float_values import values
from golden.arith.takagi_reciprocal import reciprocal
from golden.lad.vpu.vector_processing_unit import dot_product, element_wise
from hdl.arith.float_format import BINARY16, FloatFormat

Codes = NDArray[np.uint16]
Words = NDArray[np.uint64]
Reals = NDArray[np.float64]
ONE = 0x3C00


@dataclass(frozen=True)
class Corrections:
    """Active positions [n] in order: FP16 codes of coefficients, keys [n, d] and values [n, d]."""

    alpha_score: Codes
    alpha: Codes
    beta: Codes
    update: NDArray[np.bool_]
    keys: Codes
    values: Codes


def exact_attention(
    caches: Reals, query: Any, maximum: Any, corrections: Corrections
) -> tuple[Reals, float, Reals]:
    """Return output [d], denominator and updated caches in float64 (Equations 4 to 6).

    Parameters
    ----------
    caches : array [d + 1, d + 2]
        Columns of A, each with its elements of B and C; the last one is D, E and F.
    query, maximum : array [d], scalar
        FP16 codes of the query and of max_s.
    corrections : Corrections
        The active positions.
    """
    q, m = values(query), float(values(maximum))
    base = caches[:, :-2] @ q - m * caches[:, -2] + caches[:, -1]
    alpha, beta = values(corrections.alpha), values(corrections.beta)
    factor = values(corrections.alpha_score) - m * alpha + beta
    extended = np.concatenate([values(corrections.values), np.ones((len(alpha), 1))], axis=1)
    total = base + factor @ extended
    chosen = corrections.update
    column = np.stack([alpha[chosen], alpha[chosen], beta[chosen]])
    keys = np.concatenate([values(corrections.keys)[chosen], np.ones((chosen.sum(), 2))], axis=1)
    weights = np.concatenate([np.repeat(column[:1], keys.shape[1] - 2, axis=0), column[1:]]).T
    after = caches + np.einsum("ur,uk->rk", extended[chosen], weights * keys)
    return total[:-1] / total[-1], float(total[-1]), after


def factors(x: Any, maximum: Any, slope: Any, intercept: Any) -> Codes:
    """Return codes of ``x - maximum * slope + intercept``, rounded three times (cf)."""
    product = element_wise(np.asarray(maximum), slope)
    difference = float_add(BINARY16, np.asarray(x), product, 1)
    return float_add(BINARY16, difference, np.asarray(intercept)).astype(np.uint16)


@dataclass(frozen=True)
class Computed:
    """Results of a step: output [d] in FP16, flag of the denominator, and updated caches."""

    output: Codes
    not_positive: bool
    caches: Words


def attention(
    caches: Words,
    query: Codes,
    maximum: int,
    corrections: Corrections,
    *,
    cache_format: FloatFormat,
    lanes: int,
    interleaved: int,
    updates: int,
) -> Computed:
    """Return a step's output and caches, bit-exact.

    Parameters
    ----------
    caches : array [d + 1, d + 2]
        Codes of `cache_format`, in the layout of `exact_attention`.
    query, maximum, corrections
        As in `exact_attention`.
    lanes, interleaved : int
        Position i of a part is added in lane ``i % lanes``, to one of `interleaved` partial sums,
        round-robin.
    updates : int
        Positions of U per lane and part of a step.
    """
    narrow = float_convert(cache_format, BINARY16, caches) if cache_format != BINARY16 else caches
    narrow = narrow.astype(np.uint16)
    products = dot_product(query, narrow[:, :-2])
    total = _widened(factors(products, maximum, narrow[:, -2], narrow[:, -1]), cache_format)
    for part in parts(corrections, lanes, updates):
        total = _added(total, maximum, part, cache_format, lanes, interleaved)
        caches = _updated(caches, part, cache_format, lanes)

    rounded = total.astype(np.uint16)
    if cache_format != BINARY16:
        rounded = float_convert(cache_format, BINARY16, total).astype(np.uint16)
    output = element_wise(reciprocal(rounded[-1:]), rounded[:-1])
    return Computed(output, not values(rounded[-1]) > 0, caches)


def parts(corrections: Corrections, lanes: int, updates: int) -> list[Corrections]:
    """Return the parts of a step: one ends before a transfer whose updates have no room."""
    starts, kept = [0], np.zeros(lanes, int)
    for first in range(0, len(corrections.update), lanes):
        changed = np.zeros(lanes, int)
        there = corrections.update[first : first + lanes]
        changed[: len(there)] = there
        if np.any(kept + changed > updates):
            starts.append(first)
            kept[:] = 0
        kept += changed
    ends = [*starts[1:], len(corrections.update)]
    return [
        Corrections(*(array[start:end] for array in vars(corrections).values()))
        for start, end in zip(starts, ends, strict=True)
    ]


def _added(
    base: Words,
    maximum: int,
    corrections: Corrections,
    cache_format: FloatFormat,
    lanes: int,
    interleaved: int,
) -> Words:
    """Return numerator and denominator with the positions of a part added."""
    factor = factors(corrections.alpha_score, maximum, corrections.alpha, corrections.beta)
    vectors = element_wise(factor[:, np.newaxis], corrections.values)
    terms = _widened(np.concatenate([vectors, factor[:, np.newaxis]], axis=1), cache_format)
    sums = np.zeros((lanes, interleaved, len(base)), np.uint64)
    for index, term in enumerate(terms):
        place = index % lanes, index // lanes % interleaved
        sums[place] = float_add(cache_format, sums[place], term)
    first = sums[2].copy()
    first[0] = float_add(cache_format, first[0], base)
    joined = float_add(cache_format, float_add(cache_format, sums[0], sums[1]), first)
    total = joined[0]
    for more in joined[1:]:
        total = float_add(cache_format, total, more)
    return total


def _widened(codes: Codes, cache_format: FloatFormat) -> Words:
    if cache_format == BINARY16:
        return np.asarray(codes).astype(np.uint64)
    return float_convert(BINARY16, cache_format, codes)


def _updated(
    caches: Words, corrections: Corrections, cache_format: FloatFormat, lanes: int
) -> Words:
    """Return the caches with the positions of U added one by one, lane by lane."""
    chosen = np.nonzero(corrections.update)[0]
    for position in sorted(chosen, key=lambda index: (index % lanes, index)):
        extended = np.append(corrections.values[position], np.uint16(ONE))
        slopes = element_wise(corrections.alpha[position], extended)
        intercepts = element_wise(corrections.beta[position], extended)
        columns = element_wise(slopes[:, np.newaxis], corrections.keys[position])
        added = np.concatenate([columns, slopes[:, np.newaxis], intercepts[:, np.newaxis]], axis=1)
        caches = float_add(cache_format, caches, _widened(added, cache_format))
    return caches
