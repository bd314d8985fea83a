"""Model of sums in binary32 and products with Q6.10."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_multiply import float_multiply
from golden.arith.integer_to_float import integer_to_float
from hdl.arith.float_format import BINARY32
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION

Codes = NDArray[np.int64]


def single_lanes(multiply: Codes, values: Codes, addends: Codes, factors: Codes) -> Codes:
    """Return codes of sums, or of products if `multiply` is 1, shape (slices, lanes).

    Parameters
    ----------
    multiply : numpy.ndarray
        1 for products, 0 for sums, shape (slices,).
    values, addends : numpy.ndarray
        Codes of binary32, of the result's shape.
    factors : numpy.ndarray
        Integers in Q6.10, of that shape.
    """
    scale = integer_to_float(factors, np.array(FIXED_FRACTION)).view(np.uint32)
    products = float_multiply(BINARY32, values, scale)
    sums = float_add(BINARY32, values, addends)
    return np.where(multiply[:, np.newaxis] == 1, products, sums).astype(np.int64)
