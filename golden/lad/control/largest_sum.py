"""The token that a sample predicts: the first of the largest sums of the vocabulary's matrix."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import QUIET_NAN

Codes = NDArray[np.uint16]


def first_largest(sums: Codes) -> tuple[int, int]:
    """Return which of a vocabulary's sums is the largest, the first of equal ones, and its code.

    Both zeros are equal, and are shown as +0; a NaN is below every number.
    """
    size = (sums & 0x7FFF).astype(np.int32)
    number = np.where(sums >> 15 == 1, -size, size)
    number[size > 0x7C00] = -0x8000
    token = int(np.argmax(number))
    if number[token] == -0x8000:
        return token, QUIET_NAN
    return token, int(sums[token]) if number[token] else 0
