"""Exact sum of integers, the model of `hdl.arith.adder_tree`."""

import numpy as np


def adder_tree(operands: np.ndarray) -> np.ndarray:
    """Return the exact sums over the last axis.

    Parameters
    ----------
    operands : numpy.ndarray
        Integers of any type; their sums must fit in int64.

    Returns
    -------
    numpy.ndarray
        int64, one axis fewer.
    """
    return np.asarray(operands).astype(np.int64).sum(axis=-1, dtype=np.int64)
