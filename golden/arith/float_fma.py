"""Model of the fused multiply-add of one format."""

import numpy as np

from golden.arith.float_mixed import float_mixed
from hdl.arith.float_format import FloatFormat


def float_fma(
    number_format: FloatFormat,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    saturate: bool = False,
) -> np.ndarray:
    """Return the codes of ``a * b + c``, rounded once."""
    return float_mixed(number_format, number_format, a, b, c, saturate=saturate)
