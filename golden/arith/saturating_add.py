"""Clamped sum, the model of `hdl.arith.saturating_add`."""

import numpy as np


def saturate(values: np.ndarray, *, width: int, signed: bool = True) -> np.ndarray:
    """Return integers clamped to the range of `width` bits, as int64.

    Parameters
    ----------
    values : numpy.ndarray
        Integers that fit in int64.
    width : int
        Bits of the result, at most 63 if unsigned.
    signed : bool
        Clamp to the range of two's complement.
    """
    low = -(1 << (width - 1)) if signed else 0
    high = (1 << (width - signed)) - 1
    return np.clip(np.asarray(values).astype(np.int64), low, high)


def saturating_add(
    a: np.ndarray, b: np.ndarray, *, width: int, signed: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return clamped sums of integers of `width` bits (at most 62), and a mask of clamped ones."""
    exact = np.asarray(a).astype(np.int64) + np.asarray(b).astype(np.int64)
    result = saturate(exact, width=width, signed=signed)
    return result, result != exact
