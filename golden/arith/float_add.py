"""Model of the floating-point adder."""

import numpy as np

from golden.arith.float_round import encode, native_codes, native_numbers, read, sum_to_odd
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
    if number_format.native is not None and not saturate:
        x, y = (native_numbers(number_format, operand) for operand in (a, b))
        with np.errstate(over="ignore", invalid="ignore"):
            total = x + np.where(np.asarray(subtract) == 1, -y, y)
        return native_codes(number_format, total)
    x = read(number_format, a, saturate=saturate)
    y = read(number_format, b, saturate=saturate)
    y = np.where(np.asarray(subtract) == 1, -y, y)
    return encode(number_format, sum_to_odd(x, y), saturate=saturate)
