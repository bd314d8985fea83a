"""Model of the fused multiply-add of a narrow product and a wide addend."""

import numpy as np

from golden.arith.float_round import encode, read, sum_to_odd
from hdl.arith.float_format import FloatFormat


def float_mixed(
    factor_format: FloatFormat,
    sum_format: FloatFormat,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    saturate: bool = False,
) -> np.ndarray:
    """Return the codes of ``a * b + c`` in the addend's format, rounded once."""
    x = read(factor_format, a, saturate=saturate)
    y = read(factor_format, b, saturate=saturate)
    with np.errstate(invalid="ignore"):
        product = x * y
    return encode(
        sum_format, sum_to_odd(product, read(sum_format, c, saturate=saturate)), saturate=saturate
    )
