"""Bit-exact model of the broadcasting processing element: sums of words, weighted by scalars."""

import numpy as np

from golden.meadow.tile.requantisation import Integers, to_int8


def weighted_sums(
    scalars: Integers, words: Integers, *, scale: int, shift: int, wide: bool = False
) -> Integers:
    """Return the results of passes over words, shape (passes, outputs).

    Parameters
    ----------
    scalars : numpy.ndarray
        Inputs, shape (passes, elements).
    words : numpy.ndarray
        INT8 weights, shape (elements, outputs).
    scale, shift : int
        Scale and shift of the requantisation.
    wide : bool
        Whether the results are sums without requantisation.
    """
    sums = np.asarray(scalars, np.int64) @ np.asarray(words, np.int64)
    return sums if wide else to_int8(sums, scale, shift)
