"""Tests of weight packing: the paper's examples, an independent bit reader, random matrices."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.llm import open_trace
from golden.meadow.packing.chunks import encode, reindexed
from golden.meadow.packing.classes import best_table
from golden.meadow.packing.model_file import quantised
from golden.meadow.packing.packets import CorruptedPackets, pack_fixed, pack_modes
from golden.meadow.packing.weight_packer import (
    Level,
    PackedMatrix,
    pack_encoded,
    pack_matrix,
    unpack_matrix,
)
from hdl.meadow.wilu.packet_format import PACKETS

PACKED = [level for level in Level if level is not Level.RAW]


def bit_string(packed: PackedMatrix) -> list[str]:
    """Return each packet as text, its least significant bit first."""
    wide = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in packed.packets]
    return [format(word, f"0{packed.packet_bits}b")[::-1] for word in wide]


def read_bits(text: str) -> int:
    return int(text[::-1] or "0", 2)


def plain_ids(packed: PackedMatrix) -> list[int]:
    """Read IDs bit by bit from text, independently of the packer."""
    packets, ids = bit_string(packed), []
    if packed.level is Level.NAIVE:
        for packet in packets:
            width = packed.widths[0]
            ids += [read_bits(packet[i : i + width]) for i in range(0, len(packet), width)][
                : len(packet) // width
            ]
    elif packed.level is Level.CLASSES:
        starts = [sum(1 << w for w in packed.widths[:c]) for c in range(len(packed.widths))]
        row, numbers, bits = "", [], packed.class_bits
        while packets:
            header = packets.pop(0)
            fields = range(4, len(header) - bits + 1, bits)
            numbers += [read_bits(header[start : start + bits]) for start in fields]
            following = read_bits(header[:4])
            row += "".join(packets[:following])
            del packets[:following]
        for number in numbers[: packed.count]:
            ids.append(starts[number] + read_bits(row[: packed.widths[number]]))
            row = row[packed.widths[number] :]
        assert len(row) < packed.packet_bits
    else:
        for packet in packets:
            width, payload = packed.widths[read_bits(packet[:4])], packet[4:]
            ids += [
                read_bits(payload[i * width : i * width + width])
                for i in range(len(payload) // width)
            ]
    return ids[: packed.count]


def test_reindexing_matches_the_papers_example() -> None:
    """Figure 4 (c): frequencies [2, 2, 1, 6, 5] become the IDs [2, 3, 4, 0, 1]."""
    values = np.repeat([10, 11, 12, 13, 14], [2, 2, 1, 6, 5])[np.newaxis]
    old, new = encode(values, 1), reindexed(encode(values, 1))
    assert old.counts.tolist() == [2, 2, 1, 6, 5]
    assert [int(new.ids[old.ids == i][0]) for i in range(5)] == [2, 3, 4, 0, 1]
    assert new.unique.reshape(-1).tolist() == [13, 14, 10, 11, 12]


def test_chunks_run_along_the_inner_dimension_in_signed_order() -> None:
    encoded = encode(np.array([[-1, 5, 3, -128], [-1, 4, 3, -128]]), 2)
    assert encoded.unique.tolist() == [[-1, 4], [-1, 5], [3, -128]]
    assert encoded.ids.tolist() == [1, 2, 0, 2]
    assert encoded.reduction_ratio == pytest.approx(4 / 3)


def test_packets_equal_hand_computed_words() -> None:
    """IDs 5, 1, 2 have 3 bits each, from bit 0, or after the field of mode 2, whose width is 3."""
    assert pack_fixed(np.array([5, 1, 2], np.uint32), 3, 64).tolist() == [[5 | 1 << 3 | 2 << 6]]
    packets = pack_modes(np.array([5, 1, 2], np.uint32), (1, 2, 3), 64)
    assert packets.tolist() == [[2 | 5 << 4 | 1 << 7 | 2 << 10]]


def test_a_packet_takes_the_smallest_width_that_fills_it() -> None:
    """Thirty IDs of 2 bits fill a packet; if one of them is 4, twenty of 3 bits fill it."""
    ids = np.array([3] * 30 + [1] * 60 + [3] * 29 + [4] + [0] * 19, np.uint32)
    packets = pack_modes(ids, (1, 2, 3), 64)
    assert [int(word) & 15 for word in packets[:, 0]] == [1, 0, 2, 2, 0]
    assert len(packets) == 5


@pytest.mark.parametrize(
    ("packet_bits", "ratio"), [(64, 1.25), (128, 1.375), (256, 1.4375), (512, 1.4375)]
)
def test_naive_ratios_of_the_papers_matrix(packet_bits: int, ratio: float) -> None:
    """1272 unique chunks need 11 bits: 5, 11, 23 and 46 IDs per packet, a ratio up to 8 C / 11."""
    pairs = np.array(list(itertools.product(range(36), range(36)))[:1272])
    pairs = np.concatenate([pairs] * 23 * 5 * 11)
    packed = pack_matrix(pairs.reshape(-1, 2 * 1272), Level.NAIVE, packet_bits=packet_bits)
    assert packed.widths == (11,)
    assert packed.raw_bytes / packed.packet_bytes == pytest.approx(ratio, rel=1e-3)


def test_gains_on_the_synthetic_matrix() -> None:
    """Naive packing has a known ratio; each further level has a higher one."""
    matrix = np.rint(np.random.default_rng(1).standard_t(5, (768, 3072)) * 3.3)
    matrix = np.clip(matrix, -18, 17).astype(np.int8)
    gains = {
        level: matrix.size / pack_matrix(matrix, level, packet_bits=128).packet_bytes
        for level in PACKED
    }
    assert gains[Level.NAIVE] == pytest.approx(1.375, abs=0.001)
    assert 1.38 < gains[Level.PACKET] < gains[Level.REINDEXED] < gains[Level.CLASSES]
    assert gains[Level.REINDEXED] > 1.6


@pytest.mark.parametrize("packet_bits", PACKETS)
@pytest.mark.parametrize("level", PACKED)
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_independent_reader_returns_the_same_ids(
    level: Level, chunk: int, packet_bits: int
) -> None:
    rng = np.random.default_rng([chunk, packet_bits, level.value])
    for spread in (0.3, 3, 20):
        matrix = np.clip(np.rint(rng.normal(0, spread, (9, 131))), -128, 127)
        encoded = encode(matrix.astype(np.int8), chunk)
        if level in (Level.REINDEXED, Level.CLASSES):
            encoded = reindexed(encoded)
        packed = pack_encoded(encoded, matrix.shape, level, packet_bits)
        assert plain_ids(packed) == encoded.ids.tolist()
        assert np.array_equal(unpack_matrix(packed), matrix)


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 70),
    magnitude=st.sampled_from([0, 1, 5, 127]),
    chunk=st.sampled_from([1, 2, 4]),
    level=st.sampled_from(list(Level)),
    seed=st.integers(0, 1 << 30),
)
def test_unpacked_matrix_equals_original(
    rows: int, columns: int, magnitude: int, chunk: int, level: Level, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-magnitude - (magnitude == 127), magnitude + 1, (rows, columns))
    packed = pack_matrix(matrix, level, chunk=chunk)
    assert np.array_equal(unpack_matrix(packed), matrix)
    assert packed.level is Level.RAW or packed.bytes < matrix.size


def test_matrix_stays_raw_if_packing_does_not_reduce_it() -> None:
    noise = np.random.default_rng(3).integers(-128, 128, (64, 96))
    for level in Level:
        packed = pack_matrix(noise, level)
        assert packed.level is Level.RAW and packed.bytes == noise.size


def test_best_table_has_the_fewest_bits_of_all_tables() -> None:
    """The comparison includes tables with decreasing widths."""
    rng = random.Random(5)
    for _ in range(20):
        counts = sorted((rng.randrange(1, 50) for _ in range(rng.randrange(1, 14))), reverse=True)
        best = []
        for table in itertools.product(range(5), repeat=4):
            bits, start = 2 * sum(counts), 0
            for width in table:
                bits += width * sum(counts[start : start + (1 << width)])
                start += 1 << width
            if start >= len(counts):
                best.append(bits)
        assert best_table(np.array(counts), 2)[1] == min(best)


@pytest.mark.parametrize("level", PACKED)
def test_rejects_too_few_and_too_many_packets(level: Level) -> None:
    matrix = np.random.default_rng(4).integers(-3, 4, (20, 200))
    packed = pack_matrix(matrix, level)
    for packets in (packed.packets[:-1], np.concatenate([packed.packets, packed.packets[:1]])):
        with pytest.raises(CorruptedPackets):
            unpack_matrix(PackedMatrix(**{**vars(packed), "packets": packets}))


def test_corrupted_packets_are_rejected_or_give_known_chunks() -> None:
    """Flipped bits raise no other error, and every chunk is one of the matrix's."""
    rng = np.random.default_rng(6)
    matrix = rng.integers(-3, 4, (20, 100))
    refused = 0
    for level, turn in itertools.product(PACKED, range(60)):
        packed = pack_matrix(matrix, level, packet_bits=64)
        packets = packed.packets.copy()
        packets[rng.integers(len(packets)), 0] ^= np.uint64(1 << turn % 60)
        try:
            got = unpack_matrix(PackedMatrix(**{**vars(packed), "packets": packets}))
            assert got.shape == matrix.shape and abs(got).max() <= 3
        except CorruptedPackets:
            refused += 1
    assert refused > 20


def test_size_of_real_matrix_is_near_its_entropy() -> None:
    """With one scale per tensor, the best level takes at most 1.06 times the entropy of single
    weights. With one scale per channel, the paper's packing expands, so that the matrix stays raw.
    """
    weight = open_trace(text="prose", tokens=640, layers=(0, 14, 29)).linear(14, "gate_proj").weight
    integers, scales = quantised(weight, "tensor")
    assert np.abs(integers * scales[0] - weight).max() <= 0.5001 * scales[0]
    bound = encode(integers, 1).entropy
    sizes = {level: 8 * pack_matrix(integers, level).bytes / integers.size for level in PACKED}
    assert sizes[Level.NAIVE] > sizes[Level.PACKET] > sizes[Level.REINDEXED] > sizes[Level.CLASSES]
    assert sizes[Level.CLASSES] <= 1.06 * bound
    by_channel = pack_matrix(quantised(weight, "channel")[0], Level.REINDEXED)
    assert by_channel.level is Level.RAW
