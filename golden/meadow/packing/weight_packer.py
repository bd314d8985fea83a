"""A matrix packed at one of five levels, and back; raw where packing would not make it smaller."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.chunks import Encoded, Weights, checked, decode, encode, reindexed
from golden.meadow.packing.classes import best_table, pack_classes, unpack_classes
from golden.meadow.packing.packets import (
    DamagedPackets,
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
    """How a matrix is packed; the first three are the paper's (Figure 10).

    Members
    -------
    NAIVE
        IDs of one width.
    PACKET
        A width each packet.
    REINDEXED
        The same, frequent chunks having low IDs.
    CLASSES
        A class each ID; see `golden.meadow.packing.classes`.
    RAW
        The weights themselves.
    """

    NAIVE = 0
    PACKET = 1
    REINDEXED = 2
    CLASSES = 3
    RAW = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedMatrix:
    """A packed matrix, with all that its unpacker is told.

    Members
    -------
    shape : tuple[int, int]
        Rows and columns; columns are the inner dimension.
    level : Level
        How it is packed.
    chunk : int
        Weights of a chunk, C.
    unique : numpy.ndarray
        int8 [unique chunks, C]; none if raw.
    widths : tuple[int, ...]
        Of the IDs by mode, or of the offsets by class.
    class_bits : int
        Bits of a class; 0 where there are none.
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
        """Bits of a packet."""
        return 64 * self.packets.shape[1]

    @property
    def count(self) -> int:
        """IDs, or if raw whole chunks of weights."""
        rows, columns = self.shape
        if self.level is Level.RAW:
            return -(-rows * columns // self.chunk)
        return rows * -(-columns // self.chunk)

    @property
    def kind(self) -> PacketKind:
        """How the IDs lie in the packets."""
        return KINDS[self.level]

    @property
    def raw_bytes(self) -> int:
        """Bytes of the weights."""
        return self.shape[0] * self.shape[1]

    @property
    def packet_bytes(self) -> int:
        """Bytes of the packets."""
        return self.packets.size * 8

    @property
    def bytes(self) -> int:
        """What is fetched: packets and unique matrix."""
        return self.packet_bytes + self.unique.size


KINDS = {
    Level.NAIVE: PacketKind.FIXED,
    Level.PACKET: PacketKind.MODES,
    Level.REINDEXED: PacketKind.MODES,
    Level.CLASSES: PacketKind.CLASSES,
    # As if each chunk of weights were its own ID.
    Level.RAW: PacketKind.FIXED,
}


def pack_matrix(
    matrix: Any, level: Level, *, chunk: int = 2, packet_bits: int = 128
) -> PackedMatrix:
    """Pack a matrix, or keep it raw where packets and unique matrix are not smaller.

    Parameters
    ----------
    matrix : array
        [rows, columns] of integers from -128 to 127.
    level : Level
        How.
    chunk : int
        Weights of a chunk: 1, 2 or 4.
    packet_bits : int
        64 to 1024, a power of two.

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
    """Pack IDs at one of the levels but raw, whether or not that makes them smaller."""
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
    """Return the bits of a class and the widths of the offsets that take least."""
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
    """Return the weights, bit for bit what was packed.

    Raises
    ------
    DamagedPackets
        If no packer made the packets.
    """
    if packed.level is Level.RAW:
        size, each = packed.raw_bytes, packed.packet_bits // 8
        if len(packed.packets) != -(-size // each):
            needed = -(-size // each)
            raise DamagedPackets(
                f"{size} weights must fill {needed} packets, not {len(packed.packets)}"
            )
        octets = packed.packets.astype("<u8").view(np.int8).reshape(-1)
        return octets[:size].reshape(packed.shape)
    match packed.kind:
        case PacketKind.FIXED:
            ids = unpack_fixed(packed.packets, packed.widths[0], packed.count)
        case PacketKind.MODES:
            ids = unpack_modes(packed.packets, packed.widths, packed.count)
        case PacketKind.CLASSES:
            ids = unpack_classes(packed.packets, packed.widths, packed.class_bits, packed.count)
    if (worst := int(ids.max())) >= len(packed.unique):
        raise DamagedPackets(f"an ID must be below {len(packed.unique)}, not {worst}")
    return decode(ids, packed.unique, packed.shape)
