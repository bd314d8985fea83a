"""Requantisation of sums to INT8, as in both kinds of processing elements."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised

Integers = NDArray[np.int64]


def to_int8(sums: Integers, scale: int, shift: int) -> Integers:
    """Return ``sums * scale / 2**shift``, rounded half to even, clamped to INT8."""
    return np.clip(requantised(sums, scale, shift), -128, 127)


def quantised(values: NDArray[np.floating]) -> tuple[Integers, float]:
    """Return a tensor in INT8 with one symmetric scale, and that scale."""
    scale = float(np.abs(values).max()) / 127 or 1.0
    return np.clip(np.rint(np.asarray(values, np.float64) / scale), -128, 127).astype(
        np.int64
    ), scale
