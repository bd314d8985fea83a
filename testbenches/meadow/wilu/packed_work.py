"""Packed matrices for the unpackers: SmolLM2's, random ones, and corrupted ones."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.llm import open_trace
from golden.meadow.packing.chunks import Encoded, encode, reindexed
from golden.meadow.packing.model_file import quantised
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_encoded, pack_matrix
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, of_matrix
from hdl.meadow.wilu.packet_format import (
    CLASS_BITS,
    LONGEST_ID,
    MODE_BITS,
    MODES,
    PacketKind,
    ids_in,
)
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from testbenches.bench import Bench
from testbenches.packing import pack, to_integers
from testbenches.streams import StreamSink

LAYERS = (0, 14, 29)
TOKENS = 640

GROUPS = 3456
"""Minimum number of groups of IDs of each real matrix."""

LEAST_RATIO = 6
"""Minimum reduction ratio with which packing reduces a matrix."""


def prepare_weights() -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def levels(p: UnpackerParameters) -> list[Level]:
    """Return the levels that an unpacker of such dimensions reads."""
    return [level for level in Level if p.classes or level is not Level.CLASSES]


def real_matrices(
    p: UnpackerParameters, chunk: int, most: int = 1 << LONGEST_ID
) -> list[PackedMatrix]:
    """Return rows of SmolLM2's matrices at every level, with one scale per tensor.

    The rows make up `GROUPS` groups of lanes. The weights are coarsened if the unit has too few IDs
    for them, or if packing would not reduce so few rows.
    """
    most = min(most, 1 << p.id_bits)
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    names = ("q_proj", "k_proj", "gate_proj")
    packed = []
    for layer, name in zip(LAYERS, names, strict=True):
        weight = trace.linear(layer, name).weight
        rows = -(-GROUPS * p.lanes * chunk // weight.shape[1])
        weights = quantised(weight[:rows], "tensor")[0]
        encoded = encode(weights, chunk)
        while len(encoded.unique) > most or encoded.reduction_ratio < LEAST_RATIO:
            # The floors of the halves of 0 and -1 are 0 and -1 again.
            weights = weights // 2 if weights.min() < -1 or weights.max() > 0 else weights * 0
            encoded = encode(weights, chunk)
        for level in levels(p):
            if level is not Level.RAW:
                frequent = level in (Level.REINDEXED, Level.CLASSES)
                ids = reindexed(encoded) if frequent else encoded
                packed.append(pack_encoded(ids, weights.shape, level, p.packet_bits))
            elif 8 * chunk <= p.id_bits:
                packed.append(pack_matrix(weights, level, chunk=chunk, packet_bits=p.packet_bits))
    return [one for one in packed if fits(p, one)]


def described(packed: Sequence[PackedMatrix]) -> dict[str, str]:
    """Describe the real matrices, and count the IDs of each mode.

    Raises
    ------
    AssertionError
        If packing reduces no matrix, or all IDs have the same width although they need not.
    """
    smaller = {one.level for one in packed if one.bytes < one.raw_bytes}
    assert Level.REINDEXED in smaller, smaller
    ids: Counter[int] = Counter()
    for one in packed:
        if one.kind is PacketKind.MODES:
            fields = one.packets[:, 0] & np.uint64(MODES - 1)
            for mode, packets in zip(*np.unique(fields, return_counts=True), strict=True):
                width = one.widths[int(mode)]
                ids[width] += int(packets) * ids_in(one.packet_bits - MODE_BITS, width)
    assert len(ids) > 1 or all(len(one.unique) <= 16 for one in packed), ids
    names = sorted({one.level.name.lower() for one in packed})
    rows = ", ".join(str(rows) for rows in sorted({one.shape[0] for one in packed}))
    return {
        "tensors": f"SmolLM2 layers 0, 14, 29, {rows} rows, {', '.join(names)}",
        "places_by_width": ", ".join(f"{width}: {ids[width]}" for width in sorted(ids)),
    }


def fits(p: UnpackerParameters, packed: PackedMatrix) -> bool:
    """Return whether the IDs of a matrix fit into those of an unpacker."""
    return max(packed.widths) <= p.id_bits


def random_ids(
    p: UnpackerParameters, rng: np.random.Generator, count: int, *, most: int = 600
) -> list[PackedIds]:
    """Return sequences of IDs of every kind, with few to all possible values."""
    matrices = []
    for number in range(count):
        unique = min(1 << p.id_bits, int(2 ** rng.uniform(0, p.id_bits)) + (number % 3 == 0))
        length = int(rng.integers(1, most))
        # Distributions from flat to steep give a mixture of wide and narrow packets.
        ids = np.minimum((unique * rng.random(length) ** rng.choice([1, 3, 9])), unique - 1)
        matrices.append(packed_ids(p, ids.astype(np.uint32), levels(p)[number % len(levels(p))]))
    return matrices


def packed_ids(p: UnpackerParameters, ids: Any, level: Level) -> PackedIds:
    """Pack IDs that do not belong to a matrix."""
    unique = int(ids.max()) + 1
    if level is Level.RAW:
        level = Level.NAIVE
    counts = np.bincount(ids, minlength=unique).astype(np.int64)
    encoded = Encoded(ids, np.zeros((unique, 1), np.int8), np.maximum(counts, 0))
    packed = pack_encoded(encoded, (1, len(ids)), level, p.packet_bits)
    return of_matrix(packed)


def any_modes(p: UnpackerParameters, rng: np.random.Generator) -> PackedIds:
    """Return a packet of each mode in random order, with random widths."""
    widths = rng.integers(1, p.id_bits + 1, MODES)
    packets = rng.integers(0, 1 << 63, (MODES, p.packet_bits // 64)).astype(np.uint64)
    packets[:, 0] = packets[:, 0] // np.uint64(MODES) * np.uint64(MODES)
    packets[:, 0] += rng.permutation(MODES).astype(np.uint64)
    return PackedIds(
        kind=PacketKind.MODES,
        count=sum(ids_in(p.packet_bits - MODE_BITS, int(width)) for width in widths),
        unique=1 << p.id_bits,
        widths=tuple(widths.tolist()),
        class_bits=CLASS_BITS[0],
        packets=packets,
    )


def corrupted(
    p: UnpackerParameters, matrix: PackedIds, rng: np.random.Generator, how: str
) -> PackedIds:
    """Return packets with flipped bits, lost or repeated packets, or a wrong description."""
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
        case "surplus":
            if matrix.kind is PacketKind.CLASSES:
                # The last header declares one more packet of offsets.
                header = following = 0
                while following < len(packets):
                    header = following
                    following += 1 + int(packets[header, 0]) % MODES
                packets[header, 0] += np.uint64(int(packets[header, 0]) % MODES < MODES - 1)
            packets = np.concatenate([packets, packets[-1:]])
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


CORRUPTIONS = (
    "bits", "modes", "lost", "cut", "doubled", "surplus", "noise", "count", "unique", "widths",
)  # fmt: skip


def packet_items(p: UnpackerParameters, matrices: Sequence[PackedIds]) -> list[int]:
    """Return the payloads of the packets of all matrices, concatenated."""
    items = []
    for matrix in matrices:
        wide = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in matrix.packets]
        items += [*wide[:-1], wide[-1] | 1 << p.packet_bits]
    return items


def matrix_items(p: UnpackerParameters, matrices: Sequence[PackedIds]) -> list[int]:
    """Return the payloads that describe matrices."""
    descriptions = [matrix.description(p.id_bits) for matrix in matrices]
    rows = {name: np.array([one[name] for one in descriptions]) for name in descriptions[0]}
    return to_integers(pack(p.matrix_layout, rows))


async def run_to_end(
    bench: Bench, results: StreamSink, groups: StreamSink, layout: Any, count: int
) -> int:
    """Simulate until `count` results and ends of matrices are received; return the cycles.

    A result may be received before the last group of its matrix, since each stream has its own
    pauses. 20 more cycles follow, which the returned number does not include.
    """

    def ended() -> bool:
        ends = (payload >> (layout.size - 1) for _cycle, payload in groups.received)
        return len(results.received) == count and sum(ends) >= count

    cycles = await bench.run(until=ended)
    for _ in range(20):
        await bench.step()
    return cycles


def ideal_cycles(p: UnpackerParameters, matrix: PackedIds) -> int:
    """Return the ideal cycles of a matrix: one per group or per packet, whichever are more."""
    return max(-(-matrix.count // p.lanes), len(matrix.packets))


def uniform(p: UnpackerParameters, width: int, groups: int) -> PackedIds:
    """Return IDs for a whole number of groups, all in packets of one width."""
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
    """Return the IDs of a matrix, with low IDs for frequent chunks."""
    return reindexed(encode(matrix, chunk))
