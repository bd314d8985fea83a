"""Bit-exact model of the weight unpacker: chunks of weights, and errors."""

from dataclasses import dataclass

import numpy as np

from golden.meadow.packing.chunks import Weights
from golden.meadow.packing.weight_packer import Level, PackedMatrix
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, Unpacked, of_matrix, unpack
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedWeights:
    """Input of a weight unpacker for a matrix.

    Members
    -------
    packed : PackedIds
        Description of the matrix, and its packets.
    table : numpy.ndarray, optional
        Unique matrix, int8 [rows, C]; None if the packets hold raw weights.
    """

    packed: PackedIds
    table: Weights | None


@dataclass(frozen=True, kw_only=True, eq=False)
class UnpackedWeights:
    """Output of the weight unpacker for a matrix.

    Members
    -------
    chunks : numpy.ndarray
        Chunks of weights, int8 [chunks, C].
    unpacked : Unpacked
        The IDs, and the errors of the packets.
    table : bool
        Error: the number of words of the unique matrix is not that of the described rows, or is too
        large.
    """

    chunks: Weights
    unpacked: Unpacked
    table: bool


def of_weights(matrix: PackedMatrix) -> PackedWeights:
    """Return the unit's input for a packed matrix."""
    table = None if matrix.level is Level.RAW else matrix.unique
    return PackedWeights(packed=of_matrix(matrix), table=table)


def table_words(table: Weights, p: WeightUnpackerParameters) -> Weights:
    """Return the words of a unique matrix, int8 [words, rows, C]; zeros pad the last word."""
    padding = np.zeros((-len(table) % p.rows, p.chunk), np.int8)
    return np.concatenate([table, padding]).reshape(-1, p.rows, p.chunk)


def unpack_weights(given: PackedWeights, p: WeightUnpackerParameters) -> UnpackedWeights:
    """Return chunks and errors."""
    packed, id_bits = given.packed, p.unpacker.id_bits
    if given.table is None:
        unpacked = unpack(packed, id_bits)
        values = unpacked.ids.astype("<u2").view(np.int8).reshape(-1, 2)
        return UnpackedWeights(chunks=values[:, : p.chunk], unpacked=unpacked, table=False)
    words = table_words(given.table, p)
    rows = words[: p.words].reshape(-1, p.chunk)
    wrong = len(words) != -(-packed.unique // p.rows) or len(words) > p.words
    # The look-up uses only rows that exist.
    known = PackedIds(**{**vars(packed), "unique": min(packed.unique, len(rows))})
    unpacked = unpack(known, id_bits)
    return UnpackedWeights(chunks=rows[unpacked.ids], unpacked=unpacked, table=wrong)
