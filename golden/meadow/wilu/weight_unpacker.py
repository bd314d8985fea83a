"""The weight unpacker, bit-exact: chunks of weights, and what was wrong."""

from dataclasses import dataclass

import numpy as np

from golden.meadow.packing.chunks import Weights
from golden.meadow.packing.weight_packer import Level, PackedMatrix
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, Unpacked, of_matrix, unpack
from hdl.meadow.wilu.weight_unpacker import WeightUnpackerParameters


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedWeights:
    """What a weight unpacker is given for a matrix.

    Members
    -------
    packed : PackedIds
        What is told of it, and its packets.
    table : numpy.ndarray, optional
        int8 [rows, C], its unique matrix; None where the packets hold the weights themselves.
    """

    packed: PackedIds
    table: Weights | None


@dataclass(frozen=True, kw_only=True, eq=False)
class UnpackedWeights:
    """What leaves the weight unpacker for a matrix.

    Members
    -------
    chunks : numpy.ndarray
        int8 [chunks, C].
    unpacked : Unpacked
        The IDs, and what was wrong with the packets.
    table : bool
        Whether the unique matrix has another number of rows than the matrix says, or too many.
    """

    chunks: Weights
    unpacked: Unpacked
    table: bool


def of_weights(matrix: PackedMatrix) -> PackedWeights:
    """Return what the unit is given for a packed matrix."""
    table = None if matrix.level is Level.RAW else matrix.unique
    return PackedWeights(packed=of_matrix(matrix), table=table)


def unpack_weights(given: PackedWeights, p: WeightUnpackerParameters) -> UnpackedWeights:
    """Return chunks and errors."""
    packed, id_bits = given.packed, p.unpacker.id_bits
    if given.table is None:
        unpacked = unpack(packed, id_bits)
        octets = unpacked.ids.astype("<u2").view(np.int8).reshape(-1, 2)
        return UnpackedWeights(chunks=octets[:, : p.chunk], unpacked=unpacked, table=False)
    rows = given.table[: p.entries]
    wrong = len(given.table) != packed.unique or len(given.table) > p.entries
    # An ID is looked up only where there is a row.
    known = PackedIds(**{**vars(packed), "unique": min(packed.unique, len(rows))})
    unpacked = unpack(known, id_bits)
    return UnpackedWeights(chunks=rows[unpacked.ids], unpacked=unpacked, table=wrong)
