"""Bit-exact model of the parallel processing element: dot products and their requantisation."""

import numpy as np

from golden.meadow.tile.requantisation import Integers, to_int8


def dot_products(
    rows: Integers, weights: Integers, *, scale: int, shift: int, wide: bool = False
) -> Integers:
    """Return the results of each row, shape (rows, outputs).

    Parameters
    ----------
    rows : numpy.ndarray
        INT8 inputs, shape (rows, elements).
    weights : numpy.ndarray
        INT8 weights, shape (outputs, elements).
    scale, shift : int
        Scale and shift of the requantisation.
    wide : bool
        Whether the results are sums without requantisation.
    """
    sums = np.asarray(rows, np.int64) @ np.asarray(weights, np.int64).T
    return sums if wide else to_int8(sums, scale, shift)
