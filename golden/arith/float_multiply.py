"""Model of the floating-point multiplier."""

import numpy as np

from golden.arith.float_round import encode, read
from hdl.arith.float_format import FloatFormat


def float_multiply(
    number_format: FloatFormat, a: np.ndarray, b: np.ndarray, *, saturate: bool = False
) -> np.ndarray:
    """Return the codes of the products, rounded once."""
    with np.errstate(invalid="ignore"):
        product = read(number_format, a, saturate=saturate) * read(
            number_format, b, saturate=saturate
        )
    return encode(number_format, product, saturate=saturate)
