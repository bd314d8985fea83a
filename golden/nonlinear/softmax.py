"""Softmax: float64 reference, and bit-exact model of the fixed-point unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.fixed_point import quantise
from golden.arith.reciprocal import reciprocal
from hdl.nonlinear.softmax import (
    FACTOR_FRACTION,
    POWER_FRACTION,
    PROBABILITY,
    SCORE,
    SoftmaxParameters,
)

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def exact_softmax(scores: Integers, keep: Flags) -> NDArray[np.float64]:
    """Return the softmax of rows [rows, scores] of Q6.10 scores in base 2, in float64."""
    powers = np.exp2(np.where(keep, scores, -np.inf) / (1 << SCORE.fraction_bits))
    return powers / powers.sum(axis=-1, keepdims=True)


def error_bound(exact: NDArray[np.float64], keep: Flags) -> NDArray[np.float64]:
    """Return the error bound of the unit for each probability."""
    count = keep.sum(axis=-1, keepdims=True)
    return 0.005 * exact + (exact * (count + 2) + 1.25) * 2.0**-14


def quantise_scores(scores: NDArray[np.floating]) -> Integers:
    """Convert natural scores q.k / sqrt(d) to the unit's base-2 scores."""
    return quantise(np.asarray(scores, np.float64) * np.log2(np.e), SCORE)


def power(fractions: Integers) -> Integers:
    """Return 2**f for f with 10 fraction bits, in UQ1.15, by four linear segments."""
    quarter, offset = fractions >> 8, fractions & 255
    slopes, starts = power_lines()
    return (1 << POWER_FRACTION) + starts[quarter] + slopes[quarter] * offset


def power_lines() -> tuple[Integers, Integers]:
    """Return slopes of 2**f in the quarters of [0, 1), in 1/32, and 2**f - 1 at their starts.

    The rounded slopes of the chords add up to that of the whole interval: each segment starts where
    the previous one ends, after 256 steps of the offset.
    """
    slopes = np.rint(32 * 4 * np.diff(np.exp2(np.arange(5) / 4))).astype(np.int64)
    return slopes, 256 * (np.cumsum(slopes) - slopes)


def softmax(scores: Integers, keep: Flags, p: SoftmaxParameters) -> Integers:
    """Return the probabilities of rows, UQ0.16.

    Parameters
    ----------
    scores : numpy.ndarray
        [rows, scores] in Q6.10, a multiple of `p.lanes` scores.
    keep : numpy.ndarray
        Mask of the scores to include; at least one per row.
    p : SoftmaxParameters
        Parameters of the unit.
    """
    shape = (len(scores), -1, p.lanes)
    scores, keep = np.asarray(scores, np.int64).reshape(shape), keep.reshape(shape)
    whole = scores >> SCORE.fraction_bits
    fraction = scores & ((1 << SCORE.fraction_bits) - 1)
    ceilings = np.where(keep, whole + (fraction != 0), -32)
    maximum = np.maximum.accumulate(ceilings.max(axis=2), axis=1)
    distance = np.minimum(maximum[..., np.newaxis] - whole, 62)
    powers = np.where(keep, power(fraction) >> np.where(keep, distance, 0), 0)

    sums = powers.sum(axis=2)
    total = sums[:, 0]
    for slice_ in range(1, scores.shape[1]):
        growth = maximum[:, slice_] - maximum[:, slice_ - 1]
        total = (total >> np.minimum(growth, 62)) + sums[:, slice_]
    mantissa, exponent = reciprocal(total)

    # 1 / total is mantissa * 2**(-exponent) after alignment of both binary points.
    shift = exponent[:, np.newaxis] - (POWER_FRACTION - 1) + maximum[:, -1:] - maximum
    wide = mantissa[:, np.newaxis] << (FACTOR_FRACTION + 2 - POWER_FRACTION)
    factor = ((wide >> np.minimum(shift, 62)) + 1) >> 1
    drop = POWER_FRACTION + FACTOR_FRACTION - PROBABILITY.fraction_bits
    results = (powers * factor[..., np.newaxis] + (1 << drop - 1)) >> drop
    return results.reshape(len(scores), -1)
