"""Pipelined softmax: the reference in float64, and the bit-exact model of the unit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdl.meadow.tile.pipelined_softmax import (
    DISTANCES,
    EXPONENTIAL_BITS,
    RECIPROCAL_FRACTION,
    PipelinedSoftmaxParameters,
)

Integers = NDArray[np.int64]


def exponential_table(step: float) -> Integers:
    """Return the exponentials of scores that are 0 to 255 steps less than the maximum."""
    largest = (1 << EXPONENTIAL_BITS) - 1
    return np.rint(largest * np.exp(-step * np.arange(DISTANCES))).astype(np.int64)


def exact_softmax(scores: Integers, keep: Integers, step: float) -> NDArray[np.float64]:
    """Return the softmax of the scores that are not masked, in float64."""
    powers = np.where(keep, np.exp(step * (scores - scores[keep > 0].max()).astype(float)), 0.0)
    return powers / powers.sum()


def exponentials(scores: Integers, keep: Integers, table: Integers) -> Integers:
    """Return the output of stage EXP for rows of scores [..., features]."""
    kept = keep.astype(bool)
    maximum = np.where(kept, scores, -128).max(axis=-1, keepdims=True)
    return np.where(kept, table[maximum - scores & DISTANCES - 1], 0)


def reciprocal(total: int) -> tuple[int, int]:
    """Return the reciprocal of a sum: its mantissa, and the position of the sum's highest 1."""
    exponent = int(total).bit_length() - 1
    return (1 << exponent + RECIPROCAL_FRACTION) // int(total), exponent


def softmax(
    scores: Integers, keep: Integers, table: Integers, p: PipelinedSoftmaxParameters
) -> Integers:
    """Return probabilities in steps of ``2**-probability_bits``.

    Parameters
    ----------
    scores : numpy.ndarray
        Rows of INT8 scores [..., features].
    keep : numpy.ndarray
        1 for scores that are not masked, at least one per row.
    table : numpy.ndarray
        The exponential of each distance.
    p : PipelinedSoftmaxParameters
        Maximum scores per token, and bits of a probability.
    """
    powers = exponentials(np.asarray(scores, np.int64), np.asarray(keep), table)
    total = powers.sum(axis=-1)
    factors = [reciprocal(one) if one else (0, 0) for one in total.reshape(-1)]
    mantissa, exponent = (
        np.array(part, np.int64).reshape(*total.shape, 1) for part in zip(*factors, strict=True)
    )
    drop = exponent + RECIPROCAL_FRACTION - p.probability_bits
    # One bit more than the result has decides the rounding.
    rounded = (powers * mantissa >> drop - 1) + 1 >> 1
    return np.minimum(rounded, (1 << p.probability_bits) - 1)


def error_bound(exact: NDArray[np.float64], p: PipelinedSoftmaxParameters) -> NDArray[np.float64]:
    """Return the maximum error of a probability with respect to ``e / S``, in its steps."""
    certain = exact >= 1 - 2.0 ** -(p.probability_bits + 1)
    return np.where(certain, 1.0, 0.5) + 2.0 ** (p.probability_bits - 16)


Tokens = Sequence[tuple[Integers, Integers]]
"""Scores and their keep bits, one pair per token."""
