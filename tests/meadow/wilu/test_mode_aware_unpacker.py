"""Mode-aware unpacker: model compared with the packer, corrupted packets; parameters."""

import re
from typing import Any

import numpy as np
import pytest

from golden.meadow.packing.chunks import encode, reindexed
from golden.meadow.packing.packets import pack_modes
from golden.meadow.packing.weight_packer import Level, pack_encoded
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, of_matrix, unpack
from hdl.meadow.wilu.packet_format import PACKETS, PacketKind
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 1}, "lanes must be an integer from 2 to 64, not 1"),
        ({"lanes": 9}, "lanes must be at most 8 with classes, not 9"),
        ({"packet_bits": 96}, "packet_bits must be a power of two between 64 and 1024, not 96"),
        (
            {"id_bits": 2},
            "id_bits must be at least 3, the bits of a class, with classes, not 2",
        ),
        ({"id_bits": 17}, "id_bits must be an integer from 2 to 16, not 17"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        UnpackerParameters(**change)


@pytest.mark.parametrize("packet_bits", PACKETS)
@pytest.mark.parametrize("level", list(Level)[:4])
def test_valid_packets_are_unpacked_to_their_ids(level: Level, packet_bits: int) -> None:
    rng = np.random.default_rng([level.value, packet_bits])
    for spread in (0.3, 4, 30):
        matrix = np.clip(np.rint(rng.normal(0, spread, (40, 50))), -128, 127).astype(np.int8)
        encoded = reindexed(encode(matrix, 2))
        packed = of_matrix(pack_encoded(encoded, matrix.shape, level, packet_bits))
        got = unpack(packed, 16)
        assert got.ids.tolist() == encoded.ids.tolist()
        assert not any(got.result.values()) and not got.apart


def modes(ids: list[int], widths: tuple[int, ...], **changes: Any) -> PackedIds:
    fields: dict[str, Any] = {
        "kind": PacketKind.MODES,
        "count": len(ids),
        "unique": max(ids) + 1,
        "widths": widths,
        "class_bits": 0,
        "packets": pack_modes(np.array(ids, np.uint32), widths, 64),
    }
    return PackedIds(**fields | changes)


def test_corrupted_packets_give_their_errors() -> None:
    ids = [1, 2, 3] * 30
    assert unpack(modes(ids, (1, 2), unique=3), 16).result == {
        "mode": 0,
        "range": 1,
        "truncated": 0,
        "excess": 0,
    }
    beyond = unpack(modes(ids, (1, 2), unique=3), 16).ids
    assert beyond.tolist() == [i if i < 3 else 0 for i in ids]
    valid = modes(ids, (1, 2))
    cut = unpack(modes(ids, (1, 2), packets=valid.packets[:2]), 16)
    assert cut.truncated and not cut.excess and cut.ids.tolist() == ids[:60]
    more = unpack(modes(ids, (1, 2), count=60), 16)
    assert more.excess and not more.truncated and more.ids.tolist() == ids[:60]
    strange = valid.packets.copy()
    strange[1, 0] |= np.uint64(8)
    bad = unpack(modes(ids, (1, 2), packets=strange), 16)
    assert bad.mode and not bad.truncated and bad.ids.tolist() == ids[:30]


def test_width_greater_than_id_bits_is_a_mode_error() -> None:
    assert unpack(modes([300, 5, 4] * 10, (9,)), 8).result["mode"]


def test_missing_offsets_are_apart() -> None:
    """The header specifies no packets of offsets, although its classes need some."""
    matrix = np.random.default_rng(1).integers(-40, 40, (1, 4000)).astype(np.int8)
    encoded = reindexed(encode(matrix, 1))
    valid = of_matrix(pack_encoded(encoded, matrix.shape, Level.CLASSES, 64))
    assert not unpack(valid, 16).apart
    packets = valid.packets[:1].copy()
    packets[0, 0] &= ~np.uint64(15)
    short = unpack(PackedIds(**{**vars(valid), "packets": packets, "count": 10}), 16)
    assert short.apart
