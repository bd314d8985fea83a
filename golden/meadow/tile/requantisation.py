"""Requantisation of sums to INT8, as in both kinds of processing elements."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.tile.tile_parameters import MOST_EXPONENT

Integers = NDArray[np.int64]

Factor = tuple[Integers | int, Integers | int]
"""Scale and shift, each one number or an array that has the dimensions of the sums."""


def to_int8(sums: Integers, scale: Integers | int, shift: Integers | int) -> Integers:
    """Return ``sums * scale / 2**shift``, rounded half to even, clamped to INT8."""
    return np.clip(requantised(sums, scale, shift), -128, 127)


def tile_factor(factor: tuple[int, int] | Integers, exponents: Integers | None = None) -> Factor:
    """Return the factor of sums [tiles, tokens, size].

    Parameters
    ----------
    factor : tuple or numpy.ndarray
        Scale and shift of all tiles, or of each tile [tiles, 2].
    exponents : numpy.ndarray, optional
        Exponent of each token: its sums are in steps that are smaller by this power of two.
    """
    scale, shift = np.asarray(factor, np.int64).reshape(-1, 2).T[..., np.newaxis, np.newaxis]
    return scale, shift if exponents is None else shift + exponents[:, np.newaxis]


def narrowed_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return rows of values of up to 24 bits in INT8, and the exponent of each row.

    Each row is shifted right by the smallest number of bits with which all its elements fit 8 bits,
    and rounded half to even; the exponent is `MOST_EXPONENT` minus this number.
    """
    magnitudes = np.where(rows < 0, ~rows, rows).max(axis=1)
    bits = np.frexp(magnitudes.astype(np.float64))[1].astype(np.int64)
    drop = np.maximum(bits - (OPERAND.width - 1), 0)
    return to_int8(rows, 1, drop[:, np.newaxis]), MOST_EXPONENT - drop


def quantised(values: NDArray[np.floating]) -> tuple[Integers, float]:
    """Return a tensor in INT8 with one symmetric scale, and that scale."""
    scale = float(np.abs(values).max()) / 127 or 1.0
    return np.clip(np.rint(np.asarray(values, np.float64) / scale), -128, 127).astype(
        np.int64
    ), scale
