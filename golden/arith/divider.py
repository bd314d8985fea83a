"""Restoring division, the model of `hdl.arith.divider`."""

import numpy as np


def divide(
    dividend: np.ndarray, divisor: np.ndarray, *, dividend_width: int, divisor_width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return quotients and remainders of unsigned integers.

    Parameters
    ----------
    dividend, divisor : numpy.ndarray
        Unsigned integers of the given widths.
    dividend_width, divisor_width : int
        Bits of dividend and divisor, at most 63.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        int64 quotients and remainders. A division by zero gives all ones and the low
        `divisor_width` bits of the dividend.
    """
    dividend = np.asarray(dividend).astype(np.int64)
    divisor = np.asarray(divisor).astype(np.int64)
    zero = divisor == 0
    quotient, remainder = np.divmod(dividend, np.where(zero, 1, divisor))
    ones = np.int64((1 << dividend_width) - 1)
    low = dividend & np.int64((1 << divisor_width) - 1)
    return np.where(zero, ones, quotient), np.where(zero, low, remainder)
