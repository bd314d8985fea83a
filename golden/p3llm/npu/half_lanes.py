"""Model of the conversion of integers with a binary point, or of binary32, to FP16."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_convert import float_convert
from golden.arith.integer_to_float import integer_to_float
from hdl.arith.float_format import BINARY16, BINARY32

Codes = NDArray[np.int64]


def half_lanes(whole: Codes, integers: Codes, point: Codes, singles: Codes) -> Codes:
    """Return FP16 codes, shape (slices, lanes).

    Parameters
    ----------
    whole : numpy.ndarray
        1 if a slice contains integers, shape (slices,).
    integers, singles : numpy.ndarray
        Integers of 17 bits, and codes of binary32, each of the result's shape.
    point : numpy.ndarray
        The integers' binary points, shape (slices,).
    """
    of_integers = integer_to_float(integers, point[:, np.newaxis]).view(np.uint32)
    numbers = np.where(whole[:, np.newaxis] == 1, of_integers, singles)
    return float_convert(BINARY32, BINARY16, numbers).astype(np.int64)
