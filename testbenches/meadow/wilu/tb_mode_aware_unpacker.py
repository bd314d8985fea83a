"""Testbench of the mode-aware unpacker: SmolLM2's packets, corrupted packets, stalls, resets."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from golden.meadow.packing.weight_packer import Level
from golden.meadow.wilu.mode_aware_unpacker import PackedIds, of_matrix, unpack
from hdl.meadow.wilu.unpacker_parameters import RESULT, UnpackerParameters
from testbenches.applicable import only_if
from testbenches.bench import Bench, catalog_parameters
from testbenches.meadow.wilu.packed_work import (
    CORRUPTIONS,
    any_modes,
    corrupted,
    described,
    ideal_cycles,
    matrix_items,
    packed_ids,
    packet_items,
    prepare_weights,
    random_ids,
    real_matrices,
    run_to_end,
    uniform,
)
from testbenches.packing import from_integers
from testbenches.packing import unpack as fields_of
from testbenches.shared_tests import reset_test, stall_test

TURNAROUND = 24
"""Maximum cycles per matrix in addition to those of its groups and packets."""

CLASS_GROUPS = 400
"""Number of groups of a matrix with classes, so that a lost cycle per packet exceeds TURNAROUND."""


def prepare(p: UnpackerParameters) -> None:
    """Capture the tensors before the simulator starts."""
    prepare_weights()


class UnpackerBench:
    """The streams of the unpacker."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: UnpackerParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.matrices = self.bench.source("matrices", source)
        self.packets = self.bench.source("packets", source)
        self.groups = self.bench.sink("groups", sink)
        self.results = self.bench.sink("results", sink)

    async def run(self, matrices: Sequence[PackedIds]) -> int:
        """Reset, unpack matrices and compare the results; return the cycles."""
        await self.bench.reset()
        self.offer(matrices)
        layout = self.p.group_layout
        cycles = await run_to_end(self.bench, self.results, self.groups, layout, len(matrices))
        self.check(matrices)
        return cycles

    def offer(self, matrices: Sequence[PackedIds]) -> None:
        """Offer matrices and their packets."""
        self.matrices.send(matrix_items(self.p, matrices))
        self.packets.send(packet_items(self.p, matrices))

    def check(self, matrices: Sequence[PackedIds]) -> None:
        """Compare the IDs and the reported errors of each matrix."""
        p, bench = self.p, self.bench
        layouts = (p.group_layout, self.groups), (RESULT, self.results)
        groups, results = (
            fields_of(layout, from_integers([v for _, v in sink.received], layout.size))
            for layout, sink in layouts
        )
        bench.compare("matrices", np.array([len(matrices)]), np.array([groups["last"].sum()]))
        ends = np.flatnonzero(groups["last"]) + 1
        full = groups["last"] | (groups["count"] == p.lanes)
        bench.compare("full groups", np.ones(len(full), np.int64), full.astype(np.int64))
        there = np.arange(p.lanes) < groups["count"][:, np.newaxis]
        bench.compare("empty lanes", np.zeros_like(groups["ids"]), groups["ids"] * ~there)
        for number, matrix in enumerate(matrices):
            rows = slice(ends[number - 1] if number else 0, ends[number])
            got = groups["ids"][rows][there[rows]]
            expected = unpack(matrix, p.id_bits)
            found = {name: int(values[number]) for name, values in results.items()}
            ids = expected.ids
            if expected.apart and found["truncated"]:
                # The IDs whose offsets were received in time must be correct.
                assert len(got) <= len(ids)
                ids = ids[: len(got)]
            else:
                named = np.array(list(expected.result.values()))
                bench.compare("results", named, np.array([found[n] for n in expected.result]))
            bench.compare(f"IDs of matrix {number}", ids, got)


@cocotb.test()
async def real_weights(dut: Any) -> None:
    """Unpack matrices of SmolLM2 at every level at full rate, bit-exact."""
    bench = UnpackerBench(dut, "real_weights")
    p = bench.p
    packed = real_matrices(p, 2 if p.id_bits > 8 else 1)
    matrices = [of_matrix(one) for one in packed]
    cycles = await bench.run(matrices)
    ideal = sum(ideal_cycles(p, matrix) for matrix in matrices)
    assert cycles <= ideal + TURNAROUND * len(matrices) + 0.03 * ideal, (cycles, ideal)
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, **described(packed))


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Unpack packets of each width with one group or one packet per cycle, without bubbles."""
    bench = UnpackerBench(dut, "full_rate")
    p = bench.p
    for width in range(1, p.id_bits + 1):
        matrix = uniform(p, width, 60)
        cycles = await bench.run([matrix])
        assert cycles <= ideal_cycles(p, matrix) + TURNAROUND, (width, cycles)


@cocotb.test()
@only_if(lambda run: run.parameters.classes, "the unpacker supports no classes")
async def full_rate_with_classes(dut: Any) -> None:
    """Unpack classes and offsets of each width with one group or one packet per cycle."""
    bench = UnpackerBench(dut, "full_rate_with_classes")
    p = bench.p
    for width in range(1, p.id_bits + 1):
        ids = bench.bench.numpy_rng.integers(0, 1 << width, CLASS_GROUPS * p.lanes)
        matrix = packed_ids(p, ids.astype(np.uint32), Level.CLASSES)
        cycles = await bench.run([matrix])
        assert cycles <= ideal_cycles(p, matrix) + TURNAROUND, (width, cycles)


@cocotb.test()
async def every_mode(dut: Any) -> None:
    """Unpack with random widths of all modes; the packer would use only the first modes."""
    bench = UnpackerBench(dut, "every_mode")
    await bench.run([any_modes(bench.p, bench.bench.numpy_rng) for _ in range(8)])


@cocotb.test()
@cocotb.parametrize(how=CORRUPTIONS)
async def corrupted_packets(dut: Any, how: str) -> None:
    """Corrupted packets are reported with their error, and do not affect the next matrix."""
    bench = UnpackerBench(dut, f"corrupted {how}", "random", "random")
    rng = bench.bench.numpy_rng
    matrices = []
    for matrix in random_ids(bench.p, rng, 40, most=200):
        matrices += [corrupted(bench.p, matrix, rng, how), matrix]
    await bench.run(matrices)


stalls = stall_test(
    UnpackerBench, lambda bench: random_ids(bench.p, bench.bench.numpy_rng, 12, most=300)
)
resets = reset_test(
    UnpackerBench,
    lambda bench: random_ids(bench.p, bench.bench.numpy_rng, 9, most=200),
    longest=150,
    times=12,
)
