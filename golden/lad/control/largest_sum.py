"""Argmax over the LM head: the token that a sample predicts."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import QUIET_NAN

Codes = NDArray[np.uint16]


def argmax_token(sums: Codes) -> tuple[int, int]:
    """Return the argmax of the sums and its code; ties resolve to the lowest index.

    -0 and +0 are equal, and the code is then that of +0; a NaN is below every number.
    """
    size = (sums & 0x7FFF).astype(np.int32)
    number = np.where(sums >> 15 == 1, -size, size)
    number[size > 0x7C00] = -0x8000
    token = int(np.argmax(number))
    if number[token] == -0x8000:
        return token, QUIET_NAN
    return token, int(sums[token]) if number[token] else 0
