"""Model of the conversion of binary32 vectors to 16-bit integers with one binary point."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_to_fixed import float_to_fixed

BITS = 16
LEAST_EXPONENT = -126
"""A vector of zeros, or of subnormal numbers, is scaled like one of the smallest normal numbers."""

BEYOND_EXPONENT = 129
"""A vector with an infinity or a NaN is scaled like one twice as large as the largest numbers."""


def block_fixed(
    vectors: NDArray[np.float32], *, spare: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return integers of ``16 - spare`` bits, and each vector's binary point.

    Parameters
    ----------
    vectors : numpy.ndarray
        float32, shape (vectors, elements).
    spare : int
        Number of bits that are kept free.
    """
    with np.errstate(invalid="ignore"):
        largest = np.abs(vectors).max(axis=-1).astype(np.float64)
    # The largest number is below two to the exponent.
    exponent = np.frexp(np.maximum(largest, 2.0 ** (LEAST_EXPONENT - 1)))[1]
    exponent = np.where(np.isfinite(largest), exponent, BEYOND_EXPONENT)
    point = BITS - 1 - spare - exponent
    return float_to_fixed(vectors, point[..., np.newaxis]), point
