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
"""Alignment of every block in bytes, that of memory bursts."""

DIGEST_BYTES = 32
FIXED_BYTES = len(MAGIC) + 8
LONGEST_SIDE = 1 << 31

Scales = NDArray[np.float32]


class CorruptedFile(ValueError):
    """A file that `write_packed` did not write, or that was changed afterwards."""


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
        If the number of scales is not 0, 1 or the number of rows.
    """

    matrix: PackedMatrix
    scales: Scales

    def __post_init__(self) -> None:
        """Check the number of scales."""
        rows = self.matrix.shape[0]
        counts = (0, 1, rows)
        rule = f"scales must be a vector of 0, 1 or {rows} numbers"
        require(self.scales.ndim == 1 and len(self.scales) in counts, rule, self.scales.shape)


def write_packed(
    file: Path, items: Mapping[str, Item], accelerator: Mapping[str, Any] | None = None
) -> None:
    """Write packed matrices by their names, with the JSON record of their accelerator if any."""
    blocks: list[bytes] = []
    offset = 0

    def block(array: NDArray[Any]) -> dict[str, int]:
        nonlocal offset
        data = array.tobytes()
        entry = {"offset": offset, "bytes": len(data)}
        blocks.append(data + bytes(-len(data) % ALIGNMENT))
        offset += len(blocks[-1])
        return entry

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
            **({"accelerator": accelerator} if accelerator else {}),
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
    CorruptedFile
        As `read_contents`.
    """
    return read_contents(data)[0]


def read_contents(data: bytes) -> tuple[dict[str, Item], dict[str, Any]]:
    """Return the matrices of a file's bytes, and the record of their accelerator.

    The record is empty in a file for no accelerator.

    Raises
    ------
    CorruptedFile
        If the bytes are not a complete, uncorrupted file of this version.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptedFile("a packed file must begin with MEADOWPK")
    if len(data) < FIXED_BYTES + DIGEST_BYTES:
        raise CorruptedFile(
            f"a packed file must have a header and a checksum, not {len(data)} bytes"
        )
    body = memoryview(data)[:-DIGEST_BYTES]
    if hashlib.sha256(body).digest() != data[-DIGEST_BYTES:]:
        raise CorruptedFile("the checksum must be that of the file; it is corrupted or truncated")
    length = int.from_bytes(data[len(MAGIC) : FIXED_BYTES], "little")
    if FIXED_BYTES + length > len(body):
        raise CorruptedFile(f"the header must end within the file, not have {length} bytes")
    try:
        header = json.loads(bytes(body[FIXED_BYTES : FIXED_BYTES + length]))
    except (ValueError, RecursionError) as error:
        raise CorruptedFile("the header must be JSON") from error
    if not isinstance(header, dict) or header.get("version") != VERSION:
        found = header.get("version") if isinstance(header, dict) else None
        raise CorruptedFile(f"the version must be {VERSION}, not {found!r}")
    described = header.get("matrices")
    if not isinstance(described, list):
        raise CorruptedFile("the header must list matrices")
    reader = _Reader(body[FIXED_BYTES + length :])
    items: dict[str, Item] = {}
    for entry in described:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name in items:
            raise CorruptedFile(f"a matrix must have a name of its own, not {name!r}")
        items[name] = reader.item(entry)
    accelerator = header.get("accelerator", {})
    if not isinstance(accelerator, dict):
        raise CorruptedFile(f"accelerator must be a record, not {accelerator!r}")
    return items, accelerator


class _Reader:
    """Checks the entries of a header before it uses them."""

    def __init__(self, blocks: memoryview) -> None:
        self.blocks = blocks

    def item(self, entry: dict[str, Any]) -> Item:
        """Return one matrix."""
        rows, columns = self._integers(entry, "shape", 2, 1, LONGEST_SIDE)
        levels = {level.name.lower(): level for level in Level}
        if not isinstance(entry.get("level"), str) or entry["level"] not in levels:
            raise self._wrong(entry, "level", f"one of {', '.join(levels)}")
        level = levels[entry["level"]]
        chunk = self._one_of(entry, "chunk", CHUNKS)
        packet_bits = self._one_of(entry, "packet_bits", PACKETS)
        packed = PackedMatrix(
            shape=(rows, columns),
            level=level,
            chunk=chunk,
            unique=self._block(entry, "unique", np.dtype(np.int8), chunk),
            class_bits=self._one_of(entry, "class_bits", (0, *CLASS_BITS)),
            widths=(),
            packets=self._packets(entry, packet_bits),
        )
        widths = self._widths(entry, packed)
        scales = self._block(entry, "scales", np.dtype("<f4"), 1).reshape(-1)
        if len(scales) not in (0, 1, rows):
            raise self._wrong(entry, "scales", f"none, one, or {rows}")
        self._fits(entry, packed)
        if (level is Level.RAW) != (len(packed.unique) == 0):
            raise self._wrong(entry, "unique", "empty if and only if the matrix is raw")
        return Item(PackedMatrix(**{**vars(packed), "widths": widths}), scales)

    def _packets(self, entry: dict[str, Any], packet_bits: int) -> Words:
        return self._block(entry, "packets", np.dtype("<u8"), packet_bits // 64)

    def _fits(self, entry: dict[str, Any], packed: PackedMatrix) -> None:
        """Check that the packets can contain the matrix, before memory is allocated for it."""
        # A raw weight has 8 bits, and an ID or its class has at least one.
        least = 8 * packed.raw_bytes if packed.level is Level.RAW else packed.count
        bits = 8 * packed.packets.nbytes
        if least > bits:
            rule = f"of at most {bits} bits, since the packets have no more"
            raise self._wrong(entry, "shape", rule)

    def _widths(self, entry: dict[str, Any], packed: PackedMatrix) -> tuple[int, ...]:
        """Return the widths, in the number and range of the kind of packets."""
        if (packed.kind is PacketKind.CLASSES) != (packed.class_bits > 0):
            raise self._wrong(entry, "class_bits", "above 0 if and only if the level is classes")
        least = 1
        if packed.level is Level.RAW:
            number, least, most = 1, 8 * packed.chunk, 8 * packed.chunk
        elif packed.kind is PacketKind.CLASSES:
            number, least, most = 1 << packed.class_bits, 0, LONGEST_ID
        else:
            number, most = 1 if packed.kind is PacketKind.FIXED else MODES, LONGEST_ID
        listed = entry.get("widths")
        several = packed.kind is PacketKind.MODES
        if isinstance(listed, list) and several and 1 <= len(listed) <= number:
            number = len(listed)
        return self._integers(entry, "widths", number, least, most)

    def _block(
        self, entry: dict[str, Any], name: str, kind: np.dtype[Any], columns: int
    ) -> NDArray[Any]:
        """Return one block as rows of `columns` items."""
        found = entry.get(name)
        found = found if isinstance(found, dict) else {}
        offset, size = found.get("offset"), found.get("bytes")
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
            raise self._wrong(entry, name, "a block within the file, of complete rows")
        assert isinstance(offset, int) and isinstance(size, int)
        return np.frombuffer(self.blocks[offset : offset + size], kind).reshape(-1, columns)

    def _integers(
        self, entry: dict[str, Any], name: str, number: int, least: int, most: int
    ) -> tuple[int, ...]:
        listed = entry.get(name)
        values = listed if isinstance(listed, list) else []
        legal = all(type(value) is int and least <= value <= most for value in values)
        if len(values) != number or not legal:
            raise self._wrong(entry, name, f"{number} integers from {least} to {most}")
        return tuple(values)

    def _one_of(self, entry: dict[str, Any], name: str, choices: Any) -> int:
        value = entry.get(name)
        if type(value) is not int or value not in choices:
            raise self._wrong(entry, name, f"one of {', '.join(map(str, choices))}")
        return value

    def _wrong(self, entry: dict[str, Any], name: str, rule: str) -> CorruptedFile:
        return CorruptedFile(
            f"{name} of {entry.get('name')!r} must be {rule}, not {entry.get(name)!r}"
        )
