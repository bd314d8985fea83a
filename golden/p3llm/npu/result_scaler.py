"""Model of the conversion of integer sums to binary32, with their scales."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_convert import float_convert
from golden.arith.float_multiply import float_multiply
from golden.arith.integer_to_float import integer_to_float
from hdl.arith.float_format import BINARY16, BINARY32

Codes = NDArray[np.int64]


def result_scaler(sums: Codes, factors: Codes, common: Codes, point: Codes) -> Codes:
    """Return codes of binary32, shape (slices, lanes): three roundings.

    Parameters
    ----------
    sums, factors : numpy.ndarray
        Integers of 48 bits, and codes of FP16, each of the result's shape.
    common, point : numpy.ndarray
        Codes of binary32, and the integers' binary points, shape (slices,).
    """
    numbers = integer_to_float(sums, point[:, np.newaxis]).view(np.uint32)
    wide = float_convert(BINARY16, BINARY32, factors)
    scales = float_multiply(BINARY32, wide, np.broadcast_to(common[:, np.newaxis], wide.shape))
    return float_multiply(BINARY32, numbers, scales).astype(np.int64)
