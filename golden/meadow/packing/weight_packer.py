"""Packing and unpacking of a matrix at one of five levels; raw if packing does not reduce it."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.chunks import Encoded, Weights, checked, decode, encode, reindexed
from golden.meadow.packing.classes import best_table, pack_classes, unpack_classes
from golden.meadow.packing.packets import (
    CorruptedPackets,
    Words,
    mode_widths,
    pack_fixed,
    pack_modes,
    unpack_fixed,
    unpack_modes,
    width_of,
)
from hdl.meadow.wilu.packet_format import CLASS_BITS, LONGEST_ID, PACKETS, PacketKind
from hdl.parameters import require_choice


class Level(Enum):
    """Levels of packing; the first three are the paper's (Figure 10).

    Members
    -------
    NAIVE
        IDs of one width.
    PACKET
        One width per packet.
    REINDEXED
        As PACKET, with low IDs for frequent chunks.
    CLASSES
        One class per ID; see `golden.meadow.packing.classes`.
    RAW
        The weights, unpacked.
    """

    NAIVE = 0
    PACKET = 1
    REINDEXED = 2
    CLASSES = 3
    RAW = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedMatrix:
    """A packed matrix, with all settings of its unpacker.

    Members
    -------
    shape : tuple[int, int]
        Rows and columns; columns are the inner dimension.
    level : Level
        Level of packing.
    chunk : int
        Weights per chunk, C.
    unique : numpy.ndarray
        int8 [unique chunks, C]; empty if raw.
    widths : tuple[int, ...]
        Widths in bits, of the IDs by mode, or of the offsets by class.
    class_bits : int
        Width of a class number in bits; 0 without classes.
    packets : numpy.ndarray
        uint64 [packets, packet bits / 64].
    """

    shape: tuple[int, int]
    level: Level
    chunk: int
    unique: Weights
    widths: tuple[int, ...]
    class_bits: int
    packets: Words

    @property
    def packet_bits(self) -> int:
        """Bits per packet."""
        return 64 * self.packets.shape[1]

    @property
    def count(self) -> int:
        """Number of IDs, or if raw of chunks, rounded up."""
        rows, columns = self.shape
        if self.level is Level.RAW:
            return -(-rows * columns // self.chunk)
        return rows * -(-columns // self.chunk)

    @property
    def kind(self) -> PacketKind:
        """Layout of the IDs in the packets."""
        return KINDS[self.level]

    @property
    def raw_bytes(self) -> int:
        """Size of the weights in bytes."""
        return self.shape[0] * self.shape[1]

    @property
    def packet_bytes(self) -> int:
        """Size of the packets in bytes."""
        return self.packets.size * 8

    @property
    def bytes(self) -> int:
        """Fetched bytes: packets and unique matrix."""
        return self.packet_bytes + self.unique.size


KINDS = {
    Level.NAIVE: PacketKind.FIXED,
    Level.PACKET: PacketKind.MODES,
    Level.REINDEXED: PacketKind.MODES,
    Level.CLASSES: PacketKind.CLASSES,
    # Each chunk of weights is treated as an ID.
    Level.RAW: PacketKind.FIXED,
}


def pack_matrix(
    matrix: Any, level: Level, *, chunk: int = 2, packet_bits: int = 128
) -> PackedMatrix:
    """Pack a matrix, or keep it raw if packets and unique matrix are not smaller.

    Parameters
    ----------
    matrix : array
        [rows, columns] of integers from -128 to 127.
    level : Level
        Level of packing.
    chunk : int
        Weights per chunk: 1, 2 or 4.
    packet_bits : int
        Bits per packet, a power of two from 64 to 1024.

    Raises
    ------
    ValueError
        If the matrix or a parameter breaks its rule.
    """
    require_choice("packet_bits", packet_bits, PACKETS)
    weights = checked(matrix)
    if level is not Level.RAW:
        encoded = encode(weights, chunk)
        if level in (Level.REINDEXED, Level.CLASSES):
            encoded = reindexed(encoded)
        if width_of(len(encoded.unique)) <= LONGEST_ID:
            packed = pack_encoded(encoded, weights.shape, level, packet_bits)
            if packed.bytes < weights.size:
                return packed
    return _raw(weights, chunk, packet_bits)


def pack_encoded(
    encoded: Encoded, shape: tuple[int, int], level: Level, packet_bits: int
) -> PackedMatrix:
    """Pack IDs at any level but raw, even if the result is larger than the weights."""
    unique, class_bits = len(encoded.unique), 0
    if level is Level.NAIVE:
        widths: tuple[int, ...] = (width_of(unique),)
        packets = pack_fixed(encoded.ids, widths[0], packet_bits)
    elif level is Level.CLASSES:
        class_bits, widths = _best_classes(encoded.counts)
        packets = pack_classes(encoded.ids, widths, class_bits, packet_bits)
    else:
        widths = mode_widths(unique)
        packets = pack_modes(encoded.ids, widths, packet_bits)
    return PackedMatrix(
        shape=shape,
        level=level,
        chunk=encoded.unique.shape[1],
        unique=encoded.unique,
        widths=widths,
        class_bits=class_bits,
        packets=packets,
    )


def _best_classes(counts: NDArray[np.int64]) -> tuple[int, tuple[int, ...]]:
    """Return the class bits and the offset widths with which the IDs take the fewest bits."""
    tables = {bits: best_table(counts, bits) for bits in CLASS_BITS}
    best = min(tables, key=lambda bits: tables[bits][1])
    return best, tables[best][0]


def _raw(weights: Weights, chunk: int, packet_bits: int) -> PackedMatrix:
    padded = np.zeros(-(-weights.size * 8 // packet_bits) * packet_bits // 8, np.int8)
    padded[: weights.size] = weights.reshape(-1)
    return PackedMatrix(
        shape=weights.shape,
        level=Level.RAW,
        chunk=chunk,
        unique=np.zeros((0, chunk), np.int8),
        widths=(8 * chunk,),
        class_bits=0,
        packets=padded.view("<u8").reshape(-1, packet_bits // 64),
    )


def unpack_matrix(packed: PackedMatrix) -> Weights:
    """Return the weights, bit-exact.

    Raises
    ------
    CorruptedPackets
        If the packets do not follow the format.
    """
    if packed.level is Level.RAW:
        size, each = packed.raw_bytes, packed.packet_bits // 8
        if len(packed.packets) != -(-size // each):
            needed = -(-size // each)
            raise CorruptedPackets(
                f"{size} weights must fill {needed} packets, not {len(packed.packets)}"
            )
        weights = packed.packets.astype("<u8").view(np.int8).reshape(-1)
        return weights[:size].reshape(packed.shape)
    match packed.kind:
        case PacketKind.FIXED:
            ids = unpack_fixed(packed.packets, packed.widths[0], packed.count)
        case PacketKind.MODES:
            ids = unpack_modes(packed.packets, packed.widths, packed.count)
        case PacketKind.CLASSES:
            ids = unpack_classes(packed.packets, packed.widths, packed.class_bits, packed.count)
    if (worst := int(ids.max())) >= len(packed.unique):
        raise CorruptedPackets(f"an ID must be below {len(packed.unique)}, not {worst}")
    return decode(ids, packed.unique, packed.shape)
