"""Square root of integers, the model of `hdl.arith.serial_square_root`."""

from math import isqrt

import numpy as np


def square_root(operand: np.ndarray) -> np.ndarray:
    """Return the floor of the square roots of unsigned integers.

    Parameters
    ----------
    operand : numpy.ndarray
        Integers from 0 to 2**63 - 1.

    Returns
    -------
    numpy.ndarray
        int64 of the same shape: the largest integers whose squares do not exceed the operands.
    """
    return np.vectorize(isqrt, otypes=[np.int64])(operand)
