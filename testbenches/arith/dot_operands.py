"""Hard operands for products and their sums: ends of binades, and near-cancellation."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_round import encode
from golden.arith.float_values import codes, values
from hdl.arith.float_format import BINARY16
from testbenches.arith.float_operands import random_codes, random_near

Codes = NDArray[np.uint16]

TRIED = 256
"""Number of random elements from which the one with the smallest sum is selected."""


def hard_partners(rng: np.random.Generator, vectors: Codes) -> Codes:
    """Return second factors of dot products whose large products hide no error of small ones.

    A third of the vectors has one nonzero element, often with few digits, so that its product is a
    tie. A third has two, and the sum of their products is hard as in `random_near`, or the smallest
    among `TRIED` candidates. The last third has three elements: the third product cancels the
    leading digits of the sum of the first two.

    Parameters
    ----------
    vectors : array [n, size]
        FP16 codes of the first factors.

    Returns
    -------
    array [n, size]
        FP16 codes of the second factors.
    """
    count, size = vectors.shape
    places = rng.random((count, max(size, 3))).argsort(axis=1)[:, :3] % size
    given = np.take_along_axis(values(vectors), places, axis=1).T
    kind = rng.integers(1, 1 + min(size, 3), count)
    first = values(trimmed(rng, random_codes(BINARY16, count, rng).astype(np.int64)))
    with np.errstate(all="ignore"):
        # The value of the second element for which the two products cancel.
        ratio = -given[0] / given[1]
        smallest = _smallest_sums(rng, ratio) * (kind == 2) * (rng.random(count) < 0.5)
        near = values(random_near(BINARY16, ratio * first, rng))
        scaled = ratio * first * np.ldexp(rng.uniform(-2, 2, count), rng.integers(-24, 25, count))
        second = np.where(kind == 3, _nearest(scaled), near)
        first, second = np.where(smallest[0] == 0, (first, second), smallest)
        third = _nearest(-(given[0] * first + given[1] * second) / given[2])
    partners = np.zeros_like(vectors)
    rows = np.arange(count)
    for index, factor in reversed(list(enumerate((first, second, third)))):
        partners[rows, places[:, index]] = np.where(kind > index, codes(factor), 0)
    return partners


def _nearest(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest finite FP16 numbers; 1 for infinities and NaNs."""
    finite = np.nan_to_num(numbers, nan=1.0, posinf=1.0, neginf=1.0)
    return values(encode(BINARY16, finite, saturate=True))


def _smallest_sums(rng: np.random.Generator, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return pairs [2, n] whose second is nearest, but not equal, to a multiple of the first."""
    tried = rng.uniform(1, 2, (len(ratio), TRIED)) * np.ldexp(
        1.0, rng.integers(-8, 8, (len(ratio), 1))
    )
    first = _nearest(tried)
    multiple = first * np.nan_to_num(ratio[:, np.newaxis], nan=1, posinf=1, neginf=1)
    second = _nearest(multiple)
    rest = np.abs(second - multiple)
    best = np.where(rest == 0, np.inf, rest).argmin(axis=1)[:, np.newaxis]
    return np.stack([np.take_along_axis(part, best, axis=1)[:, 0] for part in (first, second)])


def hard_factors(rng: np.random.Generator, given: Codes) -> Codes:
    """Return second factors whose products are at the end of a binade, where rounding carries.

    This includes the last binade, at whose end rounding decides between 65504 and infinity.
    """
    ends = np.ldexp(2 - 2.0**-11, rng.integers(-15, 16, given.shape))
    with np.errstate(all="ignore"):
        return codes(_nearest(ends / values(given)))


def trimmed(rng: np.random.Generator, given: NDArray[np.integer]) -> Codes:
    """Return codes with a random number of low mantissa bits cleared."""
    length = rng.integers(0, BINARY16.mantissa_bits + 1, given.shape)
    return (given >> length << length).astype(np.uint16)
