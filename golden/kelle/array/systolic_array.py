"""Exact integer model of Kelle's systolic array, and the conversion of tensors to its operands."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdl.kelle.array.systolic_array import SystolicArrayParameters

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class TilePass:
    """Vectors and the stationary tile that they are multiplied by.

    Parameters
    ----------
    weights : numpy.ndarray
        int64 [rows, rows], the tile: -128 to 127, or 0 to 255 if `unsigned_weights`.
    vectors : numpy.ndarray
        int64 [vectors, rows].
    transposed : bool
        Whether the tile is transposed.
    unsigned_weights : bool
        Whether the weights are unsigned.
    high : bool
        Whether the tile holds upper bytes, whose products are multiplied by 256.
    """

    weights: Integers
    vectors: Integers
    transposed: bool = False
    unsigned_weights: bool = False
    high: bool = False

    @property
    def sums(self) -> Integers:
        """Sums at the lanes, int64 [vectors, rows]: x W, or y W-transposed."""
        return self.vectors @ (self.weights.T if self.transposed else self.weights)


def split_bytes(values: Integers) -> tuple[Integers, Integers]:
    """Return the signed upper and the unsigned lower bytes of 16-bit integers."""
    return values >> 8, values & 255


def tiles(
    stationary: Integers,
    moving: Integers,
    p: SystolicArrayParameters,
    *,
    transposed: bool,
    wide: bool,
) -> Iterator[tuple[int, list[TilePass]]]:
    """Cut a matrix product into tile passes.

    The product is ``moving @ stationary``, or with `transposed` ``moving @ stationary.T``. Partial
    tiles are padded with zeros.

    Parameters
    ----------
    stationary : numpy.ndarray
        [inputs, outputs], or [outputs, inputs] if transposed.
    moving : numpy.ndarray
        [vectors, inputs].
    p : SystolicArrayParameters
        Dimensions of the array.
    transposed : bool
        Whether the stationary matrix is transposed.
    wide : bool
        Whether the stationary operand has 16 bits and takes two byte passes.

    Yields
    ------
    tuple[int, list[TilePass]]
        First output, and the passes whose sums, those of upper bytes times 256, add up to `rows`
        outputs.
    """
    matrix = stationary.T if transposed else stationary
    inputs, outputs = (-(-size // p.rows) * p.rows for size in matrix.shape)
    full = np.zeros((inputs, outputs), np.int64)
    full[: matrix.shape[0], : matrix.shape[1]] = matrix
    vectors = np.zeros((len(moving), inputs), np.int64)
    vectors[:, : moving.shape[1]] = moving
    for first in range(0, outputs, p.rows):
        passes = []
        for channel in range(0, inputs, p.rows):
            part = slice(channel, channel + p.rows)
            tile = full[part, first : first + p.rows]
            tile = tile.T if transposed else tile
            if wide:
                upper, lower = split_bytes(tile)
                passes.append(TilePass(upper, vectors[:, part], transposed, False, True))
                passes.append(TilePass(lower, vectors[:, part], transposed, True, False))
            else:
                passes.append(TilePass(tile, vectors[:, part], transposed))
        yield first, passes


def combined(passes: list[TilePass]) -> Integers:
    """Return the sum of all passes of one output tile, those of upper bytes times 256."""
    return np.sum([item.sums << 8 * item.high for item in passes], axis=0)
