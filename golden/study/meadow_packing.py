"""Sizes of SmolLM2's matrices, packed in every way."""

from collections.abc import Mapping
from dataclasses import dataclass

import constriction
import numpy as np
import zstandard

from golden.meadow.packing.chunks import Weights, encode
from golden.meadow.packing.weight_packer import Level, pack_matrix

LEVELS = (Level.NAIVE, Level.PACKET, Level.REINDEXED, Level.CLASSES)

STREAM = constriction.stream  # pyright: ignore[reportAttributeAccessIssue]
"""Part of an extension that has no stubs."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a group of matrices takes.

    Members
    -------
    weights : int
        Their number, and that of their bytes unpacked.
    unique, ratio : float
        Unique chunks of two weights, and the reduction ratio, on average.
    bound : float
        Shannon's bound of single weights, in bits a weight.
    bits : dict[str, float]
        Bits a weight by level or library, unique matrices and tables of frequencies included.
    """

    weights: int
    unique: float
    ratio: float
    bound: float
    bits: dict[str, float]


def library_bytes(matrix: Weights) -> dict[str, int]:
    """Return the bytes that a dictionary coder and an order-0 arithmetic coder make of a matrix."""
    compressor = zstandard.ZstdCompressor(level=19)
    symbols = matrix.reshape(-1).astype(np.int32) + 128
    counts = np.bincount(symbols, minlength=256)
    coder = STREAM.queue.RangeEncoder()
    coder.encode(symbols, STREAM.model.Categorical(counts / counts.sum(), perfect=False))
    return {
        "zstd -19": len(compressor.compress(matrix.tobytes())),
        # The decoder needs the frequencies too.
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
    """Return bits a weight by level, C and packet size, of the levels with low IDs first."""
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
