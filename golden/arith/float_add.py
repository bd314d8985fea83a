"""Model of the floating-point adder."""

import numpy as np

from golden.arith.float_round import encode_sum, read
from hdl.arith.float_format import FloatFormat


def float_add(
    number_format: FloatFormat,
    a: np.ndarray,
    b: np.ndarray,
    subtract: np.ndarray | int = 0,
    *,
    saturate: bool = False,
) -> np.ndarray:
    """Return the codes of ``a + b``, or ``a - b`` where `subtract` is 1, rounded once."""
    x = read(number_format, a, saturate=saturate)
    y = read(number_format, b, saturate=saturate)
    y = np.where(np.asarray(subtract) == 1, -y, y)
    return encode_sum(number_format, x, y, saturate=saturate)
