"""Model of the KV eDRAM: its address map, and the loss of bits in words that are not refreshed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.systolic_evictor import Integers
from hdl.kelle.edram.kv_edram import KvEdramParameters
from hdl.parameters import require, require_range

Words = NDArray[np.uint64]
HASH = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
"""Odd 32-bit multipliers of the hash that selects the bits that flip."""


def rows_of(values: Integers, p: KvEdramParameters) -> Words:
    """Return the banks' words of 16-bit values.

    Parameters
    ----------
    values : numpy.ndarray
        int64 [items, channels], channels a multiple of `row_channels`.
    p : KvEdramParameters
        Address map of the eDRAM.

    Returns
    -------
    numpy.ndarray
        uint64 [items, rows, 2, banks]: for each address of an item, `[MSB, LSB][bank]`.
    """
    items = len(values)
    byte_values = (values & 0xFFFF).astype(np.uint64).reshape(items, -1, p.word_bytes, p.banks)
    shifts = 8 * np.arange(p.word_bytes, dtype=np.uint64)[:, np.newaxis]
    halves = [(byte_values >> np.uint64(8)), byte_values & np.uint64(0xFF)]
    return np.stack([(half << shifts).sum(axis=2, dtype=np.uint64) for half in halves], axis=2)


def values_of(rows: Words, p: KvEdramParameters) -> Integers:
    """Return the 16-bit values of the banks' words: the inverse of `rows_of`."""
    shifts = 8 * np.arange(p.word_bytes, dtype=np.uint64)[:, np.newaxis]
    byte_values = (rows[..., np.newaxis, :] >> shifts) & np.uint64(0xFF)
    msb, lsb = byte_values[:, :, 0].astype(np.int64), byte_values[:, :, 1].astype(np.int64)
    values = ((msb << 8) | lsb).reshape(len(rows), -1)
    return np.where(values >= 1 << 15, values - (1 << 16), values)


def vector_rows(vector: Integers, p: KvEdramParameters) -> tuple[Words, Words]:
    """Return the rows of an input vector: its first half as keys, its second half as values."""
    channels = p.vector_entries * p.head_size
    sides = []
    for half in np.split(vector, 2):
        padded = np.zeros((1, channels), np.int64)
        padded[0, : len(half)] = half
        sides.append(rows_of(padded, p)[0])
    return sides[0], sides[1]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Retention of a word.

    Parameters
    ----------
    cycles : int
        Age, in cycles since the last write, up to which a word is intact.
    rate : float
        Probability that a bit of an older word flips.
    seed : int
        Selects the bits that flip.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    cycles: int
    rate: float
    seed: int = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("cycles", self.cycles, 1, (1 << 31) - 1)
        require(0 <= self.rate <= 1, "rate must be between 0 and 1", self.rate)
        require_range("seed", self.seed, 0, (1 << 32) - 1)

    @property
    def limit(self) -> int:
        """The rate in units of 2**-16."""
        return round(self.rate * (1 << 16))

    def read(self, word: int, address: int, age: int, width: int) -> int:
        """Return the value read from a word, a function of its bits, address and age."""
        if age <= self.cycles:
            return word
        folded = (word ^ word >> 32) & 0xFFFFFFFF
        start = (folded * HASH[0] + address * HASH[1] + self.seed) & 0xFFFFFFFF
        for bit in range(width):
            mixed = ((start + bit) * HASH[2]) & 0xFFFFFFFF
            mixed = ((mixed ^ mixed >> 15) * HASH[0]) & 0xFFFFFFFF
            if mixed >> 16 < self.limit:
                word ^= 1 << bit
        return word
