"""Operands that are hard on products and their sums: at ends of binades, or all but cancelling."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_round import encode
from golden.arith.float_values import values
from hdl.arith.float_format import BINARY16
from testbenches.arith.float_operands import random_codes, random_near

Codes = NDArray[np.uint16]

TRIED = 256
"""Elements among which that of the smallest sum is found."""


def hard_partners(rng: np.random.Generator, vectors: Codes) -> Codes:
    """Return the other factors of dot products in which no large product hides a wrong small one.

    In half of them one element alone is not zero, often with few digits, so that its product is a
    tie. In the others two are not zero, and the sum of their products is hard as `random_near` has
    it, or the smallest of those of `TRIED` elements: digits far below those of a factor are left.

    Parameters
    ----------
    vectors : array [n, size]
        FP16 codes of one factor.

    Returns
    -------
    array [n, size]
        FP16 codes of the other.
    """
    count, size = vectors.shape
    rows = np.arange(count)
    one = rng.integers(0, size, count)
    other = (one + rng.integers(min(1, size - 1), size, count)) % size
    first = trimmed(rng, random_codes(BINARY16, count, rng).astype(np.int64))
    # What the other element must be for the two products to cancel.
    with np.errstate(all="ignore"):
        ratio = -values(vectors[rows, one]) / values(vectors[rows, other])
        second = random_near(BINARY16, ratio * values(first), rng)
    least = rng.random(count) < 0.5
    smallest = _smallest_sums(rng, ratio)
    partners = np.zeros_like(vectors)
    both = rng.random(count) < 0.5
    partners[rows, other] = np.where(both, np.where(least, smallest[1], second), 0)
    partners[rows, one] = np.where(both & least, smallest[0], first)
    return partners


def _smallest_sums(rng: np.random.Generator, ratio: NDArray[np.float64]) -> tuple[Codes, Codes]:
    """Return pairs whose second is nearest to the first's multiple, but not equal to it."""
    tried = rng.uniform(1, 2, (len(ratio), TRIED)) * np.ldexp(1.0, rng.integers(-8, 8))
    first = values(encode(BINARY16, tried, saturate=True))
    multiple = np.nan_to_num(first * ratio[:, np.newaxis], nan=0, posinf=0, neginf=0)
    second = encode(BINARY16, multiple, saturate=True)
    rest = np.abs(values(second) - multiple)
    best = np.where(rest == 0, np.inf, rest).argmin(axis=1)[:, np.newaxis]
    codes = (encode(BINARY16, first, saturate=True), second)
    one, other = (np.take_along_axis(part, best, axis=1)[:, 0].astype(np.uint16) for part in codes)
    return one, other


def hard_factors(rng: np.random.Generator, codes: Codes) -> Codes:
    """Return the other factors of products that lie where a binade ends and rounding carries.

    The last binade is one of them, and rounding at its end decides on an infinity.
    """
    ends = np.ldexp(2 - 2.0**-11, rng.integers(-15, 16, codes.shape))
    with np.errstate(all="ignore"):
        factors = np.nan_to_num(ends / values(codes), nan=1.0, posinf=0.0, neginf=0.0)
    return encode(BINARY16, factors, saturate=True).astype(np.uint16)


def trimmed(rng: np.random.Generator, codes: NDArray[np.integer]) -> Codes:
    """Return codes without some of their last digits."""
    length = rng.integers(0, BINARY16.mantissa_bits + 1, codes.shape)
    return (codes >> length << length).astype(np.uint16)
