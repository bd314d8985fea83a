"""The file of packed matrices; `docs/meadow/packing/file_format.md` describes it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.chunks import CHUNKS
from golden.meadow.packing.packets import Words
from golden.meadow.packing.weight_packer import Level, PackedMatrix
from hdl.meadow.wilu.packet_format import CLASS_BITS, LONGEST_ID, MODES, PACKETS, PacketKind
from hdl.parameters import require

MAGIC = b"MEADOWPK"
VERSION = 1
ALIGNMENT = 64
"""Bytes; every block begins at a multiple, as bursts of memory do."""

DIGEST_BYTES = 32
FIXED_BYTES = len(MAGIC) + 8
LONGEST_SIDE = 1 << 31

Scales = NDArray[np.float32]


class DamagedFile(ValueError):
    """A file that `write_packed` did not write, or that was changed since."""


@dataclass(frozen=True, eq=False)
class Item:
    """A packed matrix of a model, and the scales of its integers.

    Members
    -------
    matrix : PackedMatrix
        The integers.
    scales : numpy.ndarray
        Factors of the integers, float32 [1], [rows] or [0].

    Raises
    ------
    ValueError
        If there is another number of scales.
    """

    matrix: PackedMatrix
    scales: Scales

    def __post_init__(self) -> None:
        """Check the number of scales."""
        rows = self.matrix.shape[0]
        counts = (0, 1, rows)
        rule = f"scales must be a vector of 0, 1 or {rows} numbers"
        require(self.scales.ndim == 1 and len(self.scales) in counts, rule, self.scales.shape)


def write_packed(file: Path, items: Mapping[str, Item]) -> None:
    """Write packed matrices by their names."""
    blocks: list[bytes] = []
    place = 0

    def block(array: NDArray[Any]) -> dict[str, int]:
        nonlocal place
        data = array.tobytes()
        said = {"offset": place, "bytes": len(data)}
        blocks.append(data + bytes(-len(data) % ALIGNMENT))
        place += len(blocks[-1])
        return said

    header = json.dumps(
        {
            "version": VERSION,
            "matrices": [
                {
                    "name": name,
                    "shape": list(item.matrix.shape),
                    "level": item.matrix.level.name.lower(),
                    "chunk": item.matrix.chunk,
                    "packet_bits": item.matrix.packet_bits,
                    "class_bits": item.matrix.class_bits,
                    "widths": list(item.matrix.widths),
                    "scales": block(item.scales.astype("<f4")),
                    "unique": block(item.matrix.unique),
                    "packets": block(item.matrix.packets.astype("<u8")),
                }
                for name, item in items.items()
            ],
        },
        separators=(",", ":"),
    ).encode()
    header += b" " * (-(FIXED_BYTES + len(header)) % ALIGNMENT)
    digest = hashlib.sha256()
    with file.open("wb") as out:
        for part in (MAGIC, len(header).to_bytes(8, "little"), header, *blocks):
            digest.update(part)
            out.write(part)
        out.write(digest.digest())


def read_packed(data: bytes) -> dict[str, Item]:
    """Return the matrices of a file's bytes.

    Raises
    ------
    DamagedFile
        If the bytes are not a whole, undamaged file of this version.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedFile("a packed file must begin with MEADOWPK")
    if len(data) < FIXED_BYTES + DIGEST_BYTES:
        raise DamagedFile(f"a packed file must have a header and a checksum, not {len(data)} bytes")
    body = memoryview(data)[:-DIGEST_BYTES]
    if hashlib.sha256(body).digest() != data[-DIGEST_BYTES:]:
        raise DamagedFile("the checksum must be that of the file; it is damaged or cut short")
    length = int.from_bytes(data[len(MAGIC) : FIXED_BYTES], "little")
    if FIXED_BYTES + length > len(body):
        raise DamagedFile(f"the header must end within the file, not have {length} bytes")
    try:
        header = json.loads(bytes(body[FIXED_BYTES : FIXED_BYTES + length]))
    except (ValueError, RecursionError) as error:
        raise DamagedFile("the header must be JSON") from error
    if not isinstance(header, dict) or header.get("version") != VERSION:
        found = header.get("version") if isinstance(header, dict) else None
        raise DamagedFile(f"the version must be {VERSION}, not {found!r}")
    described = header.get("matrices")
    if not isinstance(described, list):
        raise DamagedFile("the header must list matrices")
    reader = _Reader(body[FIXED_BYTES + length :])
    items: dict[str, Item] = {}
    for said in described:
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str) or name in items:
            raise DamagedFile(f"a matrix must have a name of its own, not {name!r}")
        items[name] = reader.item(said)
    return items


class _Reader:
    """Checks what a header says before anything is made of it."""

    def __init__(self, blocks: memoryview) -> None:
        self.blocks = blocks

    def item(self, said: dict[str, Any]) -> Item:
        """Return one matrix."""
        rows, columns = self._integers(said, "shape", 2, 1, LONGEST_SIDE)
        levels = {level.name.lower(): level for level in Level}
        if not isinstance(said.get("level"), str) or said["level"] not in levels:
            raise self._wrong(said, "level", f"one of {', '.join(levels)}")
        level = levels[said["level"]]
        chunk = self._one_of(said, "chunk", CHUNKS)
        packet_bits = self._one_of(said, "packet_bits", PACKETS)
        packed = PackedMatrix(
            shape=(rows, columns),
            level=level,
            chunk=chunk,
            unique=self._block(said, "unique", np.dtype(np.int8), chunk),
            class_bits=self._one_of(said, "class_bits", (0, *CLASS_BITS)),
            widths=(),
            packets=self._packets(said, packet_bits),
        )
        widths = self._widths(said, packed)
        scales = self._block(said, "scales", np.dtype("<f4"), 1).reshape(-1)
        if len(scales) not in (0, 1, rows):
            raise self._wrong(said, "scales", f"none, one, or {rows}")
        if (level is Level.RAW) != (len(packed.unique) == 0):
            raise self._wrong(said, "unique", "empty where the matrix is raw, and only there")
        return Item(PackedMatrix(**{**vars(packed), "widths": widths}), scales)

    def _packets(self, said: dict[str, Any], packet_bits: int) -> Words:
        return self._block(said, "packets", np.dtype("<u8"), packet_bits // 64)

    def _widths(self, said: dict[str, Any], packed: PackedMatrix) -> tuple[int, ...]:
        """Return the widths, as many and as large as the kind of packets has them."""
        if (packed.kind is PacketKind.CLASSES) != (packed.class_bits > 0):
            raise self._wrong(said, "class_bits", "above 0 for classes, and only there")
        least = 1
        if packed.level is Level.RAW:
            number, least, most = 1, 8 * packed.chunk, 8 * packed.chunk
        elif packed.kind is PacketKind.CLASSES:
            number, least, most = 1 << packed.class_bits, 0, LONGEST_ID
        else:
            number, most = 1 if packed.kind is PacketKind.FIXED else MODES, LONGEST_ID
        listed = said.get("widths")
        several = packed.kind is PacketKind.MODES
        if isinstance(listed, list) and several and 1 <= len(listed) <= number:
            number = len(listed)
        return self._integers(said, "widths", number, least, most)

    def _block(
        self, said: dict[str, Any], name: str, kind: np.dtype[Any], columns: int
    ) -> NDArray[Any]:
        """Return one block as rows of `columns` items."""
        place = said.get(name)
        place = place if isinstance(place, dict) else {}
        offset, size = place.get("offset"), place.get("bytes")
        fits = (
            isinstance(offset, int)
            and isinstance(size, int)
            and 0 <= offset
            and 0 <= size
            and offset % ALIGNMENT == 0
            and offset + size <= len(self.blocks)
            and size % (kind.itemsize * columns) == 0
        )
        if not fits:
            raise self._wrong(said, name, "a block within the file, of whole rows")
        assert isinstance(offset, int) and isinstance(size, int)
        return np.frombuffer(self.blocks[offset : offset + size], kind).reshape(-1, columns)

    def _integers(
        self, said: dict[str, Any], name: str, number: int, least: int, most: int
    ) -> tuple[int, ...]:
        listed = said.get(name)
        values = listed if isinstance(listed, list) else []
        legal = all(type(value) is int and least <= value <= most for value in values)
        if len(values) != number or not legal:
            raise self._wrong(said, name, f"{number} integers from {least} to {most}")
        return tuple(values)

    def _one_of(self, said: dict[str, Any], name: str, choices: Any) -> int:
        value = said.get(name)
        if type(value) is not int or value not in choices:
            raise self._wrong(said, name, f"one of {', '.join(map(str, choices))}")
        return value

    def _wrong(self, said: dict[str, Any], name: str, rule: str) -> DamagedFile:
        return DamagedFile(f"{name} of {said.get('name')!r} must be {rule}, not {said.get(name)!r}")
