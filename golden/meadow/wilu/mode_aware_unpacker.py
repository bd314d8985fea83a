"""Bit-exact model of the mode-aware unpacker: IDs and errors of valid or corrupted packets.

Valid packets are read as in `golden.meadow.packing`. This module defines the results of corrupted
packets.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.packets import Words
from golden.meadow.packing.weight_packer import Level, PackedMatrix
from hdl.meadow.wilu.packet_format import (
    CLASS_BITS,
    MODE_BITS,
    MODES,
    MOST_CLASSES,
    PacketKind,
    ids_in,
)

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedIds:
    """Description of a matrix, and its packets.

    Members
    -------
    kind : PacketKind
        Kind of the packets.
    count, unique : int
        Number of IDs of the matrix, and number of unique chunks, which IDs must be less than.
    widths : tuple[int, ...]
        Widths of IDs by mode, or of offsets by class.
    class_bits : int
        Bits of a class.
    packets : numpy.ndarray
        uint64 [packets, packet bits / 64].
    """

    kind: PacketKind
    count: int
    unique: int
    widths: tuple[int, ...]
    class_bits: int
    packets: Words

    @property
    def bases(self) -> tuple[int, ...]:
        """First IDs of the classes."""
        sizes = [0] + [1 << width for width in self.widths]
        return tuple(int(v) for v in np.cumsum(sizes)[: len(self.widths)])

    def description(self, id_bits: int) -> dict[str, Any]:
        """Return the fields of the unpacker's description of the matrix."""
        padded = np.zeros(MODES, np.int64)
        padded[: len(self.widths)] = self.widths
        bases = np.zeros(MOST_CLASSES, np.int64)
        if self.kind is PacketKind.CLASSES:
            bases[: len(self.widths)] = np.array(self.bases) & ((1 << id_bits) - 1)
        return {
            "kind": self.kind.value,
            "count": self.count,
            "unique": self.unique,
            "wide_classes": int(self.class_bits == CLASS_BITS[1]),
            "widths": padded,
            "bases": bases,
        }


@dataclass(kw_only=True)
class Unpacked:
    """Output of the unpacker for a matrix.

    Members
    -------
    ids : list[int]
        IDs in order; if `apart`, the unit may output fewer and report `truncated`.
    mode, range, truncated, excess : bool
        Errors of the packets.
    apart : bool
        Whether classes and their offsets are farther apart than in valid packets.
    """

    ids: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    mode: bool = False
    range: bool = False
    truncated: bool = False
    excess: bool = False
    apart: bool = False

    @property
    def result(self) -> dict[str, int]:
        """The fields of the result."""
        return {name: int(getattr(self, name)) for name in ("mode", "range", "truncated", "excess")}


def of_matrix(packed: PackedMatrix) -> PackedIds:
    """Return the description and packets of a packed matrix."""
    raw = packed.level is Level.RAW
    return PackedIds(
        kind=packed.kind,
        count=packed.count,
        unique=1 << 8 * packed.chunk if raw else len(packed.unique),
        widths=packed.widths,
        class_bits=packed.class_bits,
        packets=packed.packets,
    )


def unpack(packed: PackedIds, id_bits: int) -> Unpacked:
    """Return IDs and errors; widths greater than `id_bits` are undefined."""
    wide = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in packed.packets]
    widths = [width if width <= id_bits else 0 for width in packed.widths]
    widths += [0] * (MODES - len(widths))
    bits = 64 * packed.packets.shape[1]
    if packed.kind is PacketKind.CLASSES:
        done, ids = _by_classes(packed, wide, widths, bits, id_bits)
    else:
        done, ids = _by_widths(packed, wide, widths, bits)
    values = np.array(ids, np.int64)
    done.range = bool((values >= packed.unique).any())
    done.ids = np.where(values >= packed.unique, 0, values)
    return done


def _by_widths(
    packed: PackedIds, wide: list[int], widths: list[int], bits: int
) -> tuple[Unpacked, list[int]]:
    done, ids = Unpacked(), []
    low = 0 if packed.kind is PacketKind.FIXED else MODE_BITS
    for packet in wide:
        if len(ids) >= packed.count:
            done.excess = True
            return done, ids
        width = widths[packet & MODES - 1 if low else 0]
        if not width:
            done.mode = True
            return done, ids
        fields = _fields(packet >> low, width, ids_in(bits - low, width))
        ids += fields[: packed.count - len(ids)]
    done.truncated = len(ids) < packed.count
    return done, ids


def _by_classes(
    packed: PackedIds, wide: list[int], widths: list[int], bits: int, id_bits: int
) -> tuple[Unpacked, list[int]]:
    """Read all classes and all offsets, then combine them to IDs."""
    done, classes, row = Unpacked(), [], b""
    each = ids_in(bits - MODE_BITS, packed.class_bits)
    place = needed = before = offsets = 0
    while place < len(wide):
        done.excess |= len(classes) >= packed.count
        # The offsets of all headers except the most recent one must be complete.
        done.apart |= before > offsets * bits
        before = needed
        header, place = wide[place], place + 1
        new = _fields(header >> MODE_BITS, packed.class_bits, each)
        new = new[: packed.count - len(classes)]
        classes += new
        needed += sum(widths[number] for number in new)
        following = wide[place : place + (header & MODES - 1)]
        row += b"".join(packet.to_bytes(bits // 8, "little") for packet in following)
        offsets += len(following)
        place += header & MODES - 1
        # The unit holds a limited number of offsets whose classes have not been read.
        done.apart |= len(classes) < packed.count and offsets * bits - needed > bits
    done.truncated = len(classes) < packed.count
    done.apart |= needed > offsets * bits
    done.excess |= offsets * bits - needed >= bits
    ids, begins = [], 0
    for number in classes:
        ends = begins + widths[number]
        offset = int.from_bytes(row[begins // 8 : ends // 8 + 1], "little") >> begins % 8
        offset &= (1 << ends - begins) - 1
        ids.append(packed.bases[number] + offset & (1 << id_bits) - 1)
        begins = ends
    return done, ids


def _fields(word: int, width: int, number: int) -> list[int]:
    return [word >> place * width & (1 << width) - 1 for place in range(number)]
