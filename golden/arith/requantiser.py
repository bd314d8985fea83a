"""Bit-exact model of the requantiser, and the scale and shift that approximate a real factor."""

from math import frexp

import numpy as np
from numpy.typing import NDArray

from hdl.parameters import require


def requantised(
    values: NDArray[np.int64], scale: NDArray[np.int64] | int, shift: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """Return ``values * scale / 2**shift``, ties to even, clamped to 16 bits.

    Parameters
    ----------
    values : numpy.ndarray
        Accumulators of at most 48 bits.
    scale : numpy.ndarray or int
        0 to 65535.
    shift : numpy.ndarray or int
        0 to 63.
    """
    product = np.asarray(values, np.int64) * np.asarray(scale, np.int64)
    shift = np.asarray(shift, np.int64)
    floor = product >> shift
    one = np.uint64(1) << shift.astype(np.uint64)
    rest = product.view(np.uint64) & (one - np.uint64(1))
    half = one >> np.uint64(1)
    up = (rest > half) | ((rest == half) & (floor & 1 == 1))
    # Without a shift no bits are dropped and there is nothing to round.
    return np.clip(floor + (up & (shift > 0)), -(1 << 15), (1 << 15) - 1)


def scale_and_shift(factor: float, *, scale_width: int = 16) -> tuple[int, int]:
    """Return the scale and shift nearest to a positive factor, with the scale's top bit set.

    Raises
    ------
    ValueError
        If the factor is outside the range of scale and shift.
    """
    require(factor > 0, "factor must be positive", factor)
    fraction, exponent = frexp(factor)
    scale = round(fraction * (1 << scale_width))
    if scale == 1 << scale_width:
        scale, exponent = scale >> 1, exponent + 1
    shift = scale_width - exponent
    require(0 <= shift < 48 + scale_width, "factor must be 2**-48 to 2**16", factor)
    return scale, shift
