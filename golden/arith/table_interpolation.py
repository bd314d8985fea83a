"""Piecewise linear functions, the model of `hdl.arith.table_interpolation`."""

import numpy as np
from numpy.typing import ArrayLike


def interpolate(
    values: np.ndarray, breakpoints: ArrayLike, *, offset_bits: int, guard_bits: int
) -> np.ndarray:
    """Return the values of the function, int64, rounded half up.

    Parameters
    ----------
    values : numpy.ndarray
        Unsigned integers: the segment index above `offset_bits` bits of offset.
    breakpoints : ArrayLike
        Values at the ends of the segments.
    offset_bits, guard_bits : int
        As in `hdl.arith.table_interpolation.TableInterpolation`.
    """
    table = np.asarray(breakpoints, np.int64)
    piece, offset = values >> offset_bits, values & ((1 << offset_bits) - 1)
    scaled = (table[piece] << offset_bits) + (table[piece + 1] - table[piece]) * offset
    drop = offset_bits + guard_bits
    return (scaled + (1 << drop - 1)) >> drop
