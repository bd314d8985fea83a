"""Model of the multiplier whose product is exact in a wider format."""

import numpy as np

from golden.arith.float_round import encode, read
from hdl.arith.float_format import FloatFormat


def float_widening_multiply(
    factor_format: FloatFormat, product_format: FloatFormat, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """Return the codes of the products, which are exact in the wide format."""
    with np.errstate(invalid="ignore"):
        product = read(factor_format, a) * read(factor_format, b)
    return encode(product_format, product)
