"""Packed matrices for the unpackers: SmolLM2's, random ones, and damage to them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.llm import open_trace
from golden.meadow.packing.chunks import Encoded, encode, reindexed
from golden.meadow.packing.model_file import quantised
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_encoded, pack_matrix
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, of_matrix
from hdl.meadow.wilu.packet_format import LONGEST_ID, PacketKind
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from testbenches.packing import pack, to_integers

LAYERS = (0, 14, 29)
TOKENS = 640


def prepare_weights() -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def levels(p: UnpackerParameters) -> list[Level]:
    """Return the levels that an unpacker of such dimensions reads."""
    return [level for level in Level if p.classes or level is not Level.CLASSES]


def real_matrices(
    p: UnpackerParameters, chunk: int, rows: int, most: int = 1 << LONGEST_ID
) -> list[PackedMatrix]:
    """Return rows of SmolLM2's matrices at every level, coarser to have few unique chunks."""
    most = min(most, 1 << p.id_bits)
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    names = ("q_proj", "k_proj", "gate_proj")
    packed = []
    for layer, name in zip(LAYERS, names, strict=True):
        weights = quantised(trace.linear(layer, name).weight[:rows], "tensor")[0]
        while len(encode(weights, chunk).unique) > most:
            weights //= 2
        for level in levels(p):
            if level is not Level.RAW:
                encoded = encode(weights, chunk)
                if level in (Level.REINDEXED, Level.CLASSES):
                    encoded = reindexed(encoded)
                packed.append(pack_encoded(encoded, weights.shape, level, p.packet_bits))
            elif 8 * chunk <= p.id_bits:
                packed.append(pack_matrix(weights, level, chunk=chunk, packet_bits=p.packet_bits))
    return [one for one in packed if fits(p, one)]


def fits(p: UnpackerParameters, packed: PackedMatrix) -> bool:
    """Whether IDs of a matrix fit into those of an unpacker."""
    return max(packed.widths) <= p.id_bits


def random_ids(
    p: UnpackerParameters, rng: np.random.Generator, count: int, *, most: int = 600
) -> list[PackedIds]:
    """Return rows of IDs of every kind, from few different ones to all that there can be."""
    matrices = []
    for number in range(count):
        unique = min(1 << p.id_bits, int(2 ** rng.uniform(0, p.id_bits)) + (number % 3 == 0))
        length = int(rng.integers(1, most))
        # From flat to steep: wide and narrow packets side by side.
        ids = np.minimum((unique * rng.random(length) ** rng.choice([1, 3, 9])), unique - 1)
        matrices.append(packed_ids(p, ids.astype(np.uint32), levels(p)[number % len(levels(p))]))
    return matrices


def packed_ids(p: UnpackerParameters, ids: Any, level: Level) -> PackedIds:
    """Pack IDs as they are, without a matrix."""
    unique = int(ids.max()) + 1
    if level is Level.RAW:
        level = Level.NAIVE
    counts = np.bincount(ids, minlength=unique).astype(np.int64)
    encoded = Encoded(ids, np.zeros((unique, 1), np.int8), np.maximum(counts, 0))
    packed = pack_encoded(encoded, (1, len(ids)), level, p.packet_bits)
    return of_matrix(packed)


def damaged(
    p: UnpackerParameters, matrix: PackedIds, rng: np.random.Generator, how: str
) -> PackedIds:
    """Return packets with bits turned over, packets lost or doubled, or a wrong description."""
    fields = dict(vars(matrix))
    packets = matrix.packets.copy()
    match how:
        case "bits":
            for _ in range(int(rng.integers(1, 8))):
                word, bit = rng.integers(packets.size), int(rng.integers(64))
                packets.reshape(-1)[word] ^= np.uint64(1 << bit)
        case "modes":
            packets[rng.integers(len(packets)), 0] ^= np.uint64(rng.integers(1, 16))
        case "lost":
            packets = np.delete(packets, rng.integers(len(packets)), axis=0)
        case "cut":
            packets = packets[: rng.integers(1, len(packets) + 1)]
        case "doubled":
            packets = np.repeat(packets, 2, axis=0)
        case "noise":
            packets = rng.integers(0, 1 << 63, packets.shape).astype(np.uint64) * np.uint64(2)
        case "count":
            fields["count"] = max(0, matrix.count + int(rng.integers(-40, 40)))
        case "unique":
            fields["unique"] = int(rng.integers(1, matrix.unique + 1))
        case "widths":
            widths = list(matrix.widths)
            widths[rng.integers(len(widths))] = int(rng.integers(0, 32))
            fields["widths"] = tuple(widths)
    if not len(packets):
        packets = matrix.packets[:1]
    return PackedIds(**{**fields, "packets": packets})


DAMAGE = ("bits", "modes", "lost", "cut", "doubled", "noise", "count", "unique", "widths")


def packet_items(p: UnpackerParameters, matrices: Sequence[PackedIds]) -> list[int]:
    """Return the payloads of the packets of matrices, one behind the other."""
    items = []
    for matrix in matrices:
        wide = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in matrix.packets]
        items += [*wide[:-1], wide[-1] | 1 << p.packet_bits]
    return items


def matrix_items(p: UnpackerParameters, matrices: Sequence[PackedIds]) -> list[int]:
    """Return the payloads that describe matrices."""
    told = [matrix.told(p.id_bits) for matrix in matrices]
    rows = {name: np.array([one[name] for one in told]) for name in told[0]}
    return to_integers(pack(p.matrix_layout, rows))


def ideal_cycles(p: UnpackerParameters, matrix: PackedIds) -> int:
    """Return the cycles of a matrix: a group or a packet in each, whichever are more."""
    return max(-(-matrix.count // p.lanes), len(matrix.packets))


def uniform(p: UnpackerParameters, width: int, groups: int) -> PackedIds:
    """Return IDs that all need packets of one width, a whole number of groups."""
    ids = np.full(groups * p.lanes, (1 << width) - 1, np.uint32)
    packed = packed_ids(p, ids, Level.PACKET)
    assert packed.kind is PacketKind.MODES
    return packed


def random_matrix(rng: np.random.Generator, weights: int, spread: float) -> Any:
    """Return a matrix of random shape."""
    columns = int(rng.integers(1, 40))
    rows = max(1, weights // columns)
    return np.clip(np.rint(rng.normal(0, spread, (rows, columns))), -128, 127).astype(np.int8)


def frequent_first(matrix: Any, chunk: int) -> Encoded:
    """Return a matrix's IDs, frequent chunks having low ones."""
    return reindexed(encode(matrix, chunk))
