"""The mode-aware unpacker, bit-exact: IDs and errors of packets, sound or damaged.

Sound packets are read as `golden.meadow.packing` reads them. What damaged ones give is said here.
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
    """What is told of a matrix, and its packets.

    Members
    -------
    kind : PacketKind
        Of its packets.
    count, unique : int
        IDs of the matrix, and how many different ones there may be.
    widths : tuple[int, ...]
        By mode or class.
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

    def told(self, id_bits: int) -> dict[str, Any]:
        """Return the fields of the descriptor."""
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
    """What leaves the unpacker for a matrix.

    Members
    -------
    ids : list[int]
        In order; where they lie `apart`, the unit may give fewer, and say that they are truncated.
    mode, range, truncated, excess : bool
        What was wrong.
    apart : bool
        Whether classes and their offsets lie farther apart than in sound packets.
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
    """Return what an unpacker is told of a packed matrix, and its packets."""
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
    """Return IDs and errors; widths above `id_bits` count as none."""
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
    """Read all classes and all offsets, then put them together."""
    done, classes, row = Unpacked(), [], b""
    each = ids_in(bits - MODE_BITS, packed.class_bits)
    place = needed = before = offsets = 0
    while place < len(wide):
        done.excess |= len(classes) >= packed.count
        # What all headers but the last one read need must have come.
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
        # More offsets than there are classes for are held, but not many.
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
