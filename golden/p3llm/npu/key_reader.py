"""Model of the dequantisation of keys that were quantised before the rotary embedding."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values
from golden.arith.int4_asym import operand

Singles = NDArray[np.float32]


def dequantised(
    stored: NDArray[np.uint8],
    zeros: NDArray[np.uint8],
    scales: NDArray[np.uint16],
    factors: NDArray[np.uint16],
) -> Singles:
    """Return keys, float32, shape (..., tokens, channels).

    The token's scale times the channel's smoothing factor is exact; its product with (code - zero
    point) is rounded once.

    Parameters
    ----------
    stored : numpy.ndarray
        4-bit codes, of that shape.
    zeros, scales : numpy.ndarray
        Zero points, and scales in FP16, shape (..., tokens).
    factors : numpy.ndarray
        Smoothing factors in FP16, shape (..., 1, channels).
    """
    factors_of = values(factors).astype(np.float32)
    both = values(scales).astype(np.float32)[..., np.newaxis] * factors_of
    single: Singles = operand(stored, zeros[..., np.newaxis]).astype(np.float32)
    return np.multiply(single, both, dtype=np.float32)
