"""Symmetric INT8 and INT16 quantisation: one scale per vector, no zero point."""

import numpy as np

from hdl.parameters import require_range


def quantise(
    values: np.ndarray, *, bits: int = 8, axis: int | tuple[int, ...] | None = -1
) -> tuple[np.ndarray, np.ndarray]:
    """Return integers and scales: ``scale = max|x| / (2**(bits - 1) - 1)``.

    The range is symmetric: the most negative integer is not used. Rounding is half to even in
    float32 arithmetic, whose 24-bit significand suffices for 16 bits.

    Parameters
    ----------
    values : numpy.ndarray
        Finite floats.
    bits : int
        Bits of an integer, 2 to 16.
    axis : int or tuple or None
        Axes along which elements share one scale; None for one common scale.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        int8 or int16, and float32 scales with axes of length 1. A vector of zeros has scale 1.

    Raises
    ------
    ValueError
        If `bits` is outside its range.
    """
    require_range("bits", bits, 2, 16)
    values = np.asarray(values, np.float32)
    limit = np.float32((1 << (bits - 1)) - 1)
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales = np.where(largest == 0, np.float32(1), largest / limit)
    integers = np.clip(np.rint(values / scales), -limit, limit)
    return integers.astype(np.int8 if bits <= 8 else np.int16), scales
