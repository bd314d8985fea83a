"""Unique chunks of a matrix and their IDs (Sections 5.1 and 5.3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.parameters import require, require_choice

Ids = NDArray[np.uint32]
Weights = NDArray[np.int8]

CHUNKS = (1, 2, 4)
"""Legal numbers of weights per chunk, C."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A matrix as IDs of unique chunks.

    Members
    -------
    ids : numpy.ndarray
        uint32, one ID per chunk, row by row.
    unique : numpy.ndarray
        int8 [unique chunks, C]; row i is the chunk of ID i.
    counts : numpy.ndarray
        int64 [unique chunks], occurrences of each ID.
    """

    ids: Ids
    unique: Weights
    counts: NDArray[np.int64]

    @property
    def reduction_ratio(self) -> float:
        """Number of chunks of the matrix divided by the number of unique chunks."""
        return len(self.ids) / len(self.unique)

    @property
    def entropy(self) -> float:
        """Shannon's lower bound of a code for single IDs, in bits/ID."""
        shares = self.counts / len(self.ids)
        return float(-(shares * np.log2(shares)).sum())


def checked(matrix: Any) -> Weights:
    """Return a matrix of 8-bit integers as int8.

    Raises
    ------
    ValueError
        If it does not have two axes, is empty, or has elements other than integers from -128 to
        127.
    """
    array = np.asarray(matrix)
    require(array.ndim == 2 and array.size > 0, "a matrix must have rows and columns", array.shape)
    integers = np.issubdtype(array.dtype, np.integer)
    require(integers, "a matrix must have integers", str(array.dtype))
    if array.dtype != np.int8:
        least, most = int(array.min()), int(array.max())
        require(-128 <= least and most <= 127, "weights must be from -128 to 127", (least, most))
    return np.ascontiguousarray(array, np.int8)


def encode(matrix: Any, chunk: int) -> Encoded:
    """Divide the inner dimension into chunks and number the unique ones in ascending order.

    Chunks are ordered as rows of signed numbers, with the first weight the most significant. Rows
    whose length is no multiple of `chunk` are padded with zeros.
    """
    require_choice("chunk", chunk, CHUNKS)
    weights = checked(matrix)
    if rest := -weights.shape[1] % chunk:
        weights = np.pad(weights, ((0, 0), (0, rest)))
    # An offset of 128 makes the unsigned order that of the signed weights; the first weight is the
    # most significant byte.
    shifted = (weights.view(np.uint8) ^ 0x80).reshape(-1, chunk)
    keys = shifted[:, 0].astype(np.uint32)
    for index in range(1, chunk):
        keys = (keys << 8) | shifted[:, index]
    if chunk <= 2:
        counts = np.bincount(keys, minlength=1 << 8 * chunk)
        values = np.flatnonzero(counts).astype(np.uint32)
        numbers = np.zeros(len(counts), np.uint32)
        numbers[values] = np.arange(len(values))
        ids, counts = numbers[keys], counts[values]
    else:
        values, found, counts = np.unique(keys, return_inverse=True, return_counts=True)
        ids = found.astype(np.uint32)
    shifts = 8 * np.arange(chunk - 1, -1, -1, dtype=np.uint32)
    unique = ((values[:, np.newaxis] >> shifts & 0xFF) ^ 0x80).astype(np.uint8).view(np.int8)
    return Encoded(ids, unique, counts.astype(np.int64))


def reindexed(encoded: Encoded) -> Encoded:
    """Assign low IDs to frequent chunks; equally frequent chunks keep their order."""
    order = np.argsort(-encoded.counts, kind="stable")
    new = np.empty(len(order), np.uint32)
    new[order] = np.arange(len(order))
    return Encoded(new[encoded.ids], encoded.unique[order], encoded.counts[order])


def decode(ids: Ids, unique: Weights, shape: tuple[int, int]) -> Weights:
    """Return the matrix: the inverse of `encode`, for any order of the unique chunks."""
    chunk = unique.shape[1]
    rows, columns = shape
    return unique[ids].reshape(rows, -(-columns // chunk) * chunk)[:, :columns]
