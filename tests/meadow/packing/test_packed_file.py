"""Tests of the file of packed matrices: it returns what was written, or rejects corrupted files."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.meadow.packing.packed_file import (
    DIGEST_BYTES,
    FIXED_BYTES,
    CorruptedFile,
    Item,
    read_packed,
    write_packed,
)
from golden.meadow.packing.packets import CorruptedPackets
from golden.meadow.packing.weight_packer import Level, pack_matrix, unpack_matrix


def matrices() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {level.name: rng.integers(-3, 4, (7, 300)) for level in Level} | {
        "odd": rng.integers(-1, 2, (3, 1)),
        "noise": rng.integers(-128, 128, (5, 8)),
    }


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    items = {
        name: Item(
            pack_matrix(matrix, Level[name] if name in Level.__members__ else Level.CLASSES),
            np.arange(len(matrix) if name == "odd" else name == "NAIVE", dtype=np.float32),
        )
        for name, matrix in matrices().items()
    }
    write_packed(tmp_path / "x", items)
    return (tmp_path / "x").read_bytes()


def resealed(content: bytes, change: Any) -> bytes:
    """Return the file with a changed header and a correct checksum."""
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[FIXED_BYTES : FIXED_BYTES + length])
    change(header)
    text = json.dumps(header).encode().ljust(length)
    body = content[:8] + len(text).to_bytes(8, "little") + text
    body += content[FIXED_BYTES + length : -DIGEST_BYTES]
    return body + hashlib.sha256(body).digest()


def test_read_file_equals_written_matrices(content: bytes) -> None:
    read = read_packed(content)
    assert list(read) == list(matrices())
    for name, matrix in matrices().items():
        assert np.array_equal(unpack_matrix(read[name].matrix), matrix)
    assert read["odd"].scales.tolist() == [0, 1, 2]
    assert read["NAIVE"].scales.tolist() == [0] and not len(read["RAW"].scales)


@pytest.mark.parametrize("shape", [(2,), (8,), (7, 1)])
def test_rejects_wrong_number_of_scales(shape: tuple[int, ...]) -> None:
    packed = pack_matrix(matrices()["RAW"], Level.RAW)
    with pytest.raises(ValueError, match="scales must be a vector of 0, 1 or 7 numbers"):
        Item(packed, np.ones(shape, np.float32))


def test_equal_matrices_make_equal_files(content: bytes, tmp_path: Path) -> None:
    write_packed(tmp_path / "again", read_packed(content))
    assert (tmp_path / "again").read_bytes() == content


def test_every_block_begins_at_a_multiple_of_64_bytes(content: bytes) -> None:
    length = int.from_bytes(content[8:16], "little")
    assert (FIXED_BYTES + length) % 64 == 0
    for entry in json.loads(content[FIXED_BYTES : FIXED_BYTES + length])["matrices"]:
        assert all(entry[block]["offset"] % 64 == 0 for block in ("scales", "unique", "packets"))


def test_rejects_every_flipped_bit_and_every_truncation(content: bytes) -> None:
    rng = random.Random(1)
    for _ in range(300):
        bit = rng.randrange(8 * len(content))
        corrupted = bytearray(content)
        corrupted[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptedFile):
            read_packed(bytes(corrupted))
        with pytest.raises(CorruptedFile):
            read_packed(content[: rng.randrange(len(content))])
    with pytest.raises(CorruptedFile):
        read_packed(content + b"\0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(version=2), "the version must be 1, not 2"),
        (lambda h: h.pop("matrices"), "the header must list matrices"),
        (lambda h: h["matrices"].append(3), "a matrix must have a name of its own, not None"),
        (lambda h: h["matrices"][1].update(name="NAIVE"), "a name of its own, not 'NAIVE'"),
        (lambda h: h["matrices"][0].update(shape=[7, 0]), "shape of 'NAIVE' must be 2 integers"),
        (
            lambda h: h["matrices"][0].update(shape=[1 << 31, 1 << 31]),
            r"shape of 'NAIVE' must be of at most \d+ bits, since the packets have no more",
        ),
        (
            lambda h: h["matrices"][2].update(shape=[1 << 31, 1]),
            r"shape of '\w+' must be of at most \d+ bits",
        ),
        (lambda h: h["matrices"][4].update(shape=[8, 300]), "shape of 'RAW' must be of at most"),
        (lambda h: h["matrices"][0].update(level="best"), "level of 'NAIVE' must be one of naive"),
        (lambda h: h["matrices"][0].update(chunk=3), "chunk of 'NAIVE' must be one of 1, 2, 4"),
        (
            lambda h: h["matrices"][0].update(packet_bits=96),
            "must be one of 64, 128, 256, 512, 1024",
        ),
        (lambda h: h["matrices"][3].update(class_bits=0), "must be above 0 if and only if"),
        (lambda h: h["matrices"][0].update(widths=[0]), "must be 1 integers from 1 to 16"),
        (lambda h: h["matrices"][1].update(widths=[1] * 17), "must be 16 integers from 1 to 16"),
        (lambda h: h["matrices"][0]["unique"].update(bytes=1 << 40), "a block within the file"),
        (lambda h: h["matrices"][0]["packets"].update(offset=-64), "a block within the file"),
        (lambda h: h["matrices"][0]["packets"].update(bytes=24), "a block within the file"),
        (lambda h: h["matrices"][0].update(unique={"offset": 0, "bytes": 0}), "must be empty"),
    ],
)
def test_rejects_illegal_header(content: bytes, change: Any, message: str) -> None:
    with pytest.raises(CorruptedFile, match=message):
        read_packed(resealed(content, change))


def test_random_headers_raise_no_other_error(content: bytes) -> None:
    """A header with random values and a correct checksum is rejected, or gives some matrices."""
    rng, refused = random.Random(2), 0
    values = [None, -1, 0, 1, 7, 1 << 31, 1 << 70, "x", [], {}, [1, 2], True, 1.5]

    def change(header: Any) -> None:
        entry = rng.choice(header["matrices"])
        name = rng.choice(list(entry))
        if isinstance(entry[name], dict) and rng.random() < 0.7:
            entry[name][rng.choice(["offset", "bytes"])] = rng.choice(values)
        else:
            entry[name] = rng.choice(values)

    for _ in range(500):
        try:
            for item in read_packed(resealed(content, change)).values():
                unpack_matrix(item.matrix)
        except (CorruptedFile, CorruptedPackets):
            refused += 1
    assert refused > 300
