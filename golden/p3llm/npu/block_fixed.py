"""Vectors of binary32 as 16-bit integers with one binary point: the model."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_to_fixed import float_to_fixed

BITS = 16
LEAST_EXPONENT = -126
"""A vector of zeros, or of subnormal numbers, is scaled as one of the smallest normal ones is."""

BEYOND_EXPONENT = 129
"""One with an infinity or a NaN is scaled as one twice as large as the largest numbers."""


def block_fixed(
    vectors: NDArray[np.float32], *, spare: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return integers of ``16 - spare`` bits, and each vector's binary point.

    Parameters
    ----------
    vectors : numpy.ndarray
        float32, shape (vectors, elements).
    spare : int
        Bits that are left free.
    """
    with np.errstate(invalid="ignore"):
        largest = np.abs(vectors).max(axis=-1).astype(np.float64)
    # The largest number is below two to the exponent.
    exponent = np.frexp(np.maximum(largest, 2.0 ** (LEAST_EXPONENT - 1)))[1]
    exponent = np.where(np.isfinite(largest), exponent, BEYOND_EXPONENT)
    point = BITS - 1 - spare - exponent
    return float_to_fixed(vectors, point[..., np.newaxis]), point
