"""Carry-save sum of four integers, the model of `hdl.arith.compressor`."""

import numpy as np


def compressor(operands: np.ndarray, *, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers with the sum of four, modulo ``2**(width + 2)``.

    There are two rows of full adders: the first adds operands 0, 1 and 2; the second adds operand 3
    to the sum and carry of the first.

    Parameters
    ----------
    operands : numpy.ndarray
        Signed or unsigned integers, four along the last axis.
    width : int
        Bits of an operand, at most 60.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        Sum and carry, uint64, each below ``2**(width + 2)``.
    """
    mask = np.uint64((1 << (width + 2)) - 1)
    a, b, c, d = np.moveaxis(np.asarray(operands).astype(np.int64).view(np.uint64) & mask, -1, 0)
    total, carry = _full_adders(a, b, c, mask)
    return _full_adders(total, carry, d, mask)


def _full_adders(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, mask: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum bits and the shifted carry bits of one row of full adders."""
    majority = (a & b) | (a & c) | (b & c)
    return a ^ b ^ c, (majority << np.uint64(1)) & mask
