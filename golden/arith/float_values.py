"""FP16 codes and their values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

ONE = 0x3C00
LARGEST = 0x7BFF
INFINITY = 0x7C00
QUIET_NAN = 0x7E00


def codes(numbers: Any) -> NDArray[np.uint16]:
    """Return the nearest FP16 codes, ties to even."""
    return np.asarray(numbers).astype(np.float16).view(np.uint16)


def values(bits: Any, *, saturate: bool = False) -> NDArray[np.float64]:
    """Return FP16 codes as float64.

    With `saturate` the largest exponent code encodes numbers like any other.
    """
    bits = np.asarray(bits).astype(np.uint16)
    if not saturate:
        return bits.view(np.float16).astype(np.float64)
    top = bits & 0x7C00 == 0x7C00
    lowered = np.where(top, bits - 0x0400, bits).astype(np.uint16)
    return lowered.view(np.float16).astype(np.float64) * np.where(top, 2.0, 1.0)
