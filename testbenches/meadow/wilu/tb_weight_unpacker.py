"""Testbench of the weight unpacker: SmolLM2's weights, raw weights, corrupted packets, stalls."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from golden.meadow.packing.weight_packer import (
    Level,
    PackedMatrix,
    pack_encoded,
    pack_matrix,
    unpack_matrix,
)
from golden.meadow.wilu.weight_unpacker import (
    PackedWeights,
    of_weights,
    table_words,
    unpack_weights,
)
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.meadow.wilu.packed_work import (
    CORRUPTIONS,
    any_modes,
    corrupted,
    described,
    fits,
    frequent_first,
    ideal_cycles,
    levels,
    packet_items,
    prepare_weights,
    random_ids,
    random_matrix,
    real_matrices,
    run_to_end,
)
from testbenches.packing import from_integers, pack, to_integers
from testbenches.packing import unpack as fields_of
from testbenches.shared_tests import reset_test, stall_test

TURNAROUND = 24
"""Maximum cycles per matrix in addition to those of its groups and packets."""


def prepare(p: WeightUnpackerParameters) -> None:
    """Capture the tensors before the simulator starts."""
    prepare_weights()


def random_matrices(
    p: WeightUnpackerParameters, rng: np.random.Generator, count: int, *, most: int
) -> list[PackedMatrix]:
    """Return matrices of every level, including raw, with up to the maximum of unique chunks."""
    matrices = []
    for number in range(count):
        level = levels(p.unpacker)[number % len(levels(p.unpacker))]
        for spread in (rng.choice([0.4, 2, 9, 60]), 1, 0.2):
            matrix = random_matrix(rng, int(rng.integers(1, most)), spread)
            encoded = frequent_first(matrix, p.chunk)
            if len(encoded.unique) <= p.entries:
                break
        if level is Level.RAW:
            packed = pack_matrix(matrix, level, chunk=p.chunk, packet_bits=p.unpacker.packet_bits)
        else:
            packed = pack_encoded(encoded, matrix.shape, level, p.unpacker.packet_bits)
        matrices.append(packed)
    return [packed for packed in matrices if fits(p.unpacker, packed)]


class WeightsBench:
    """The streams of the weight unpacker."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: WeightUnpackerParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.inputs = {
            name: self.bench.source(name, source) for name in ("tables", "matrices", "packets")
        }
        self.weights = self.bench.sink("weights", sink)
        self.results = self.bench.sink("results", sink)

    def offer(self, given: Sequence[PackedWeights]) -> None:
        """Offer unique matrices, descriptions and packets."""
        p = self.p
        packed = [one.packed for one in given]
        self.inputs["packets"].send(packet_items(p.unpacker, packed))
        descriptions = [one.description(p.unpacker.id_bits) for one in packed]
        rows = {name: np.array([one[name] for one in descriptions]) for name in descriptions[0]}
        bypass = np.array([one.table is None for one in given]).astype(int)
        items = pack(p.matrix_layout, {"packed": rows, "bypass": bypass})
        self.inputs["matrices"].send(to_integers(items))
        for one in given:
            if one.table is not None:
                words = table_words(one.table, p)
                last = np.arange(len(words)) == len(words) - 1
                items = pack(p.table_layout, {"weights": words, "last": last.astype(int)})
                self.inputs["tables"].send(to_integers(items))

    async def run(self, given: Sequence[PackedWeights]) -> int:
        """Reset, unpack matrices and compare the results; return the cycles."""
        await self.bench.reset()
        self.offer(given)
        layout = self.p.weights_layout
        cycles = await run_to_end(self.bench, self.results, self.weights, layout, len(given))
        self.check(given)
        return cycles

    def check(self, given: Sequence[PackedWeights]) -> None:
        """Compare the weights and the reported errors of each matrix."""
        p, bench = self.p, self.bench
        layouts = (p.weights_layout, self.weights), (p.result_layout, self.results)
        groups, results = (
            fields_of(layout, from_integers([v for _, v in sink.received], layout.size))
            for layout, sink in layouts
        )
        bench.compare("matrices", np.array([len(given)]), np.array([groups["last"].sum()]))
        ends = np.flatnonzero(groups["last"]) + 1
        there = np.arange(p.unpacker.lanes) < groups["count"][:, np.newaxis]
        chunks = groups["weights"]
        bench.compare("empty lanes", np.zeros_like(chunks), chunks * ~there[..., np.newaxis])
        for number, one in enumerate(given):
            rows = slice(ends[number - 1] if number else 0, ends[number])
            got, expected = chunks[rows][there[rows]], unpack_weights(one, p)
            found = {name: int(v[number]) for name, v in results["packets"].items()}
            wanted = expected.chunks.astype(np.int64)
            if expected.unpacked.apart and found["truncated"]:
                wanted = wanted[: len(got)]
            else:
                named = expected.unpacked.result
                bench.compare(
                    "results", np.array(list(named.values())), np.array([found[n] for n in named])
                )
            bench.compare("tables", np.array([expected.table]), results["table"][[number]] == 1)
            bench.compare(f"weights of matrix {number}", wanted, got)


@cocotb.test()
async def real_weights(dut: Any) -> None:
    """Unpack matrices of SmolLM2 at every level at full rate, bit-exact."""
    bench = WeightsBench(dut, "real_weights")
    p = bench.p
    packed = real_matrices(p.unpacker, p.chunk, p.entries)
    given = [of_weights(one) for one in packed]
    for one, unpacked in zip(packed, given, strict=True):
        # The golden model must return the matrix itself.
        chunks = unpack_weights(unpacked, p).chunks.reshape(-1)
        matrix = unpack_matrix(one)
        if matrix.shape[1] % p.chunk == 0:
            assert np.array_equal(chunks[: matrix.size], matrix.reshape(-1))
    cycles = await bench.run(given)
    # The unit stalls if loading a unique matrix takes longer than unpacking the previous matrix.
    ideal = sum(ideal_cycles(p.unpacker, one.packed) for one in given)
    streaming = f"{cycles} of {ideal}"
    bench.bench.record(cycles=0, ideal_cycles=0, streaming=streaming, **described(packed))


@cocotb.test()
async def reload_while_streaming(dut: Any) -> None:
    """Load the next unique matrix while the current one is in use: only the first one stalls."""
    bench = WeightsBench(dut, "reload_while_streaming")
    p, rng = bench.p, bench.bench.numpy_rng
    given, tables = [], []
    rows = min(p.entries, 64)
    for _ in range(6):
        table = rng.integers(-128, 128, (rows, p.chunk)).astype(np.int8)
        matrix = table[rng.integers(0, rows, 100 * p.unpacker.lanes)].reshape(1, -1)
        packed = pack_encoded(
            frequent_first(matrix, p.chunk), matrix.shape, Level.NAIVE, p.unpacker.packet_bits
        )
        given.append(of_weights(packed))
        tables.append(len(table_words(packed.unique, p)))
    cycles = await bench.run(given)
    ideal = sum(ideal_cycles(p.unpacker, one.packed) for one in given)
    assert cycles <= tables[0] + ideal + TURNAROUND * len(given), (cycles, ideal)
    bench.bench.record(cycles=cycles, ideal_cycles=ideal + tables[0])


@cocotb.test()
async def any_ids(dut: Any) -> None:
    """Look up IDs of every width in random unique matrices, and pass raw fields."""
    bench = WeightsBench(dut, "any_ids")
    p, rng = bench.p, bench.bench.numpy_rng
    given = []
    modes = [any_modes(p.unpacker, rng) for _ in range(8)]
    for packed in [*random_ids(p.unpacker, rng, 40), *modes]:
        table = rng.integers(-128, 128, (packed.unique, p.chunk)).astype(np.int8)
        bypass = packed.unique > p.entries or rng.random() < 0.2
        given.append(PackedWeights(packed=packed, table=None if bypass else table))
    await bench.run(given)


@cocotb.test()
@cocotb.parametrize(how=(*CORRUPTIONS, "table"))
async def corrupted_packets(dut: Any, how: str) -> None:
    """Corrupted packets and unique matrices are reported, and do not affect the next matrix."""
    bench = WeightsBench(dut, f"corrupted {how}", "random", "random")
    p, rng = bench.p, bench.bench.numpy_rng
    given = []
    # Raw fields expose every bit of every width, and a width that is too large.
    modes = [PackedWeights(packed=any_modes(p.unpacker, rng), table=None) for _ in range(16)]
    for one in [*map(of_weights, random_matrices(p, rng, 24, most=200)), *modes]:
        packed, table = one.packed, one.table
        if how != "table":
            packed = corrupted(p.unpacker, packed, rng, how)
        elif table is not None:
            # Shorter, longer, and longer than the memory.
            length = rng.choice([1, len(table) + 1, p.entries + 3])
            table = np.resize(table, (length, p.chunk))
        given += [PackedWeights(packed=packed, table=table), one]
    await bench.run(given)


def random_weights(bench: WeightsBench, count: int, most: int) -> list[PackedWeights]:
    """Return random packed matrices of at most `most` chunks."""
    packed = random_matrices(bench.p, bench.bench.numpy_rng, count, most=most)
    return [of_weights(one) for one in packed]


stalls = stall_test(WeightsBench, lambda bench: random_weights(bench, 10, 300))
resets = reset_test(
    WeightsBench, lambda bench: random_weights(bench, 9, 200), longest=200, times=12
)
