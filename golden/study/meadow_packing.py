"""Sizes of SmolLM2's matrices at every packing level."""

from collections.abc import Mapping
from dataclasses import dataclass

import constriction
import numpy as np
import zstandard

from golden.meadow.packing.chunks import Weights, encode
from golden.meadow.packing.weight_packer import Level, pack_matrix

LEVELS = (Level.NAIVE, Level.PACKET, Level.REINDEXED, Level.CLASSES)

STREAM = constriction.stream  # pyright: ignore[reportAttributeAccessIssue]
"""Part of an extension without type stubs."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a group of matrices.

    Members
    -------
    weights : int
        Number of weights, and of bytes before packing.
    unique, ratio : float
        Mean number of unique chunks of two weights, and mean reduction ratio.
    bound : float
        Shannon bound for single weights, in bits/weight.
    bits : dict[str, float]
        Bits/weight by level or library, with unique matrices and frequency tables.
    """

    weights: int
    unique: float
    ratio: float
    bound: float
    bits: dict[str, float]


def library_bytes(matrix: Weights) -> dict[str, int]:
    """Return a matrix's bytes after a dictionary coder and after an order-0 arithmetic coder."""
    compressor = zstandard.ZstdCompressor(level=19)
    symbols = matrix.reshape(-1).astype(np.int32) + 128
    counts = np.bincount(symbols, minlength=256)
    coder = STREAM.queue.RangeEncoder()
    coder.encode(symbols, STREAM.model.Categorical(counts / counts.sum(), perfect=False))
    return {
        "zstd -19": len(compressor.compress(matrix.tobytes())),
        # The decoder also needs the frequencies.
        "range coder": coder.get_compressed().nbytes + 2 * 256,
    }


def measured(matrices: Mapping[str, Weights], *, chunk: int = 2, packet_bits: int = 128) -> Sizes:
    """Pack a group of matrices at every level."""
    weights = sum(matrix.size for matrix in matrices.values())
    pairs = [encode(matrix, 2) for matrix in matrices.values()]
    bound = sum(encode(matrix, 1).entropy * matrix.size for matrix in matrices.values())
    taken: dict[str, float] = {}
    for matrix in matrices.values():
        packed = {
            level.name.lower(): pack_matrix(matrix, level, chunk=chunk, packet_bits=packet_bits)
            for level in LEVELS
        }
        one = {name: made.bytes for name, made in packed.items()} | library_bytes(matrix)
        for name, size in one.items():
            taken[name] = taken.get(name, 0) + size
    return Sizes(
        weights=weights,
        unique=float(np.mean([len(pair.unique) for pair in pairs])),
        ratio=float(np.mean([pair.reduction_ratio for pair in pairs])),
        bound=bound / weights,
        bits={name: 8 * size / weights for name, size in taken.items()},
    )


def swept(
    matrices: Mapping[str, Weights], chunks: tuple[int, ...], packets: tuple[int, ...]
) -> dict[tuple[str, int, int], float]:
    """Return bits/weight by level, C and packet size, for the levels that re-index IDs."""
    weights = sum(matrix.size for matrix in matrices.values())
    return {
        (level.name.lower(), chunk, packet): 8
        / weights
        * sum(
            pack_matrix(matrix, level, chunk=chunk, packet_bits=packet).bytes
            for matrix in matrices.values()
        )
        for level in (Level.PACKET, Level.REINDEXED, Level.CLASSES)
        for chunk in chunks
        for packet in packets
    }
