"""Testbench of the systolic array: SmolLM2 projections and attention, stalls, resets, extremes."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.kelle.array.systolic_array import Integers, TilePass
from golden.llm import Trace, open_trace
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from testbenches.bench import Bench, catalog_parameters, record_fact
from testbenches.kelle.array.tile_passes import (
    pack_vectors,
    pack_weights,
    passes_of,
    projection,
    random_passes,
    scores_operands,
    values_operands,
)
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

LAYER = 14
VECTORS = 512
TOKENS = 96
CHUNK = 1024
"""Number of cycles that are unpacked at a time."""


def open_layer() -> Trace:
    """Return the tensors of a prose text."""
    return open_trace(text="prose", tokens=640, layers=(0, LAYER, 29))


def prepare(p: SystolicArrayParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_layer()


def read(port: Any) -> int:
    """Return a port's bits; unknown bits, which lanes without a result may have, read as 1.

    An unknown `valid` thus is a surplus result, and an unknown sum a wrong result.
    """
    value = port.value
    try:
        return int(value)
    except ValueError:
        return int(value.resolve("ones"))


class Lanes:
    """Record the output of every lane in every cycle, and the cycles of accepted vectors."""

    def __init__(self, bench: Bench, vectors: Any, p: SystolicArrayParameters) -> None:
        self.bench, self.vectors, self.p = bench, vectors, p
        self.port = bench.dut.lanes
        self.seen: list[int] = []
        self.first_cycle = self.bench.cycle
        self.accepted_at: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Discard all recorded values."""
        self.seen = []
        self.first_cycle = self.bench.cycle
        self.accepted_at = []

    def drive(self) -> None:
        """Drive nothing."""
        if not self.seen:
            self.first_cycle = self.bench.cycle

    def sample(self) -> None:
        """Read the port."""
        if self.vectors.accepted:
            self.accepted_at.append(self.bench.cycle)
        self.seen.append(read(self.port))

    def check(self, sums: np.ndarray, tags: np.ndarray) -> None:
        """Require every result in its lane and cycle, and no other."""
        p, bench = self.p, self.bench
        layout = data.ArrayLayout(p.lane_layout, p.rows)
        bench.compare("vectors accepted", np.array([len(sums)]), np.array([len(self.accepted_at)]))
        shape = (len(self.seen), p.rows)
        expected = {name: np.zeros(shape, np.int64) for name in ("sum", "tag", "valid")}
        lanes = np.arange(p.rows)
        when = (
            np.array(self.accepted_at, np.int64)[:, np.newaxis]
            - self.first_cycle
            + p.latency
            + lanes
        )
        expected["sum"][when, lanes] = sums
        expected["tag"][when, lanes] = tags[:, np.newaxis]
        expected["valid"][when, lanes] = 1
        for start in range(0, len(self.seen), CHUNK):
            part = slice(start, start + CHUNK)
            got = unpack(layout, from_integers(self.seen[part], layout.size))
            cycles = np.arange(start, start + len(got["valid"])) + self.first_cycle
            bench.compare("lanes.valid", expected["valid"][part], got["valid"], cycles=cycles)
            for name in ("sum", "tag"):
                shown = got[name] * got["valid"]
                bench.compare(f"lanes.{name}", expected[name][part], shown, cycles=cycles)


class Array:
    """A bench that drives and monitors the array's streams.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of the vectors and of the weights; no output can stall.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: SystolicArrayParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.vectors = self.bench.source("vectors", source)
        self.weights = self.bench.source("weights", sink)
        self.lanes = self.bench.add(Lanes(self.bench, self.vectors, self.p))

    def offer(self, passes: Sequence[TilePass]) -> Integers:
        """Offer all weights and vectors, and return the vectors' random tags."""
        count = sum(len(item.vectors) for item in passes)
        tags = self.bench.numpy_rng.integers(0, 1 << self.p.tag_width, count)
        start = 0
        for item in passes:
            self.weights.send(pack_weights(item.weights, self.p))
            own = tags[start : start + len(item.vectors)]
            self.vectors.send(pack_vectors(item, own, self.p))
            start += len(item.vectors)
        return tags

    async def run(self, passes: Sequence[TilePass]) -> int:
        """Reset, run passes, and compare all results; return the cycles to the last result."""
        await self.bench.reset()
        tags = self.offer(passes)
        await self.bench.run(until=lambda: self.vectors.idle and self.weights.idle)
        await self.bench.step(self.p.latency + self.p.rows)
        self.lanes.check(np.concatenate([item.sums for item in passes]), tags)
        return self.cycles

    async def check_silence(self) -> None:
        """Require that no lane outputs a result when nothing is input."""
        await self.bench.step(self.p.latency + self.p.rows)
        self.lanes.check(np.zeros((0, self.p.rows), np.int64), np.zeros(0, np.int64))

    @property
    def cycles(self) -> int:
        """Cycles from the first acceptance to the last result, both included."""
        accepted = self.lanes.accepted_at
        return accepted[-1] + self.p.latency + self.p.rows - accepted[0]


def some_passes(array: Array, count: int) -> list[TilePass]:
    """Return random tiles and modes."""
    return list(random_passes(array.bench.numpy_rng, array.p, count))


@cocotb.test()
async def projections(dut: Any) -> None:
    """Stream 512 tokens through tiles of the q, k and v weights, without a bubble."""
    p = catalog_parameters()
    trace = open_layer()
    # Small arrays need more tiles for the same channels than there is time for.
    inputs = 576 if p.rows >= 32 else 8 * p.rows
    passes = []
    for name in ("q_proj", "k_proj", "v_proj"):
        weights, activations = projection(trace, LAYER, name, p, VECTORS)
        passes += passes_of((weights[:inputs], activations[:, :inputs]), p, outputs=1)
    array = Array(dut, "projections")
    await array.run(passes)
    # The paper's array takes one vector per cycle (two cycles with one multiplier), and is filled
    # and drained once. The constant is the additional latency of the design.
    products = p.passes * sum(len(item.vectors) for item in passes)
    constant = p.latency - p.rows + 1 - (p.passes - 1)
    expected = products + 2 * p.rows - 2 + constant
    array.bench.compare("cycles", np.array([expected]), np.array([array.cycles]))
    one = p.passes * VECTORS
    array.bench.record(
        cycles=array.cycles,
        ideal_cycles=products,
        tensors=f"SmolLM2 layer {LAYER}, q/k/v projections of {VECTORS} tokens",
        utilization_of_one_tile=round(one / (one + 2 * p.rows - 2 + constant), 4),
    )


@cocotb.test()
async def batches(dut: Any) -> None:
    """Multiply tokens of several sequences by each tile: the load is hidden, or limits the rate."""
    p = catalog_parameters()
    trace = open_layer()
    for batch in (1, 4, 16):
        weights, activations = projection(trace, LAYER, "q_proj", p, batch)
        operands = (weights[: 8 * p.rows], activations[:, : 8 * p.rows])
        array = Array(dut, f"batch of {batch}")
        passes = list(passes_of(operands, p, outputs=2))
        await array.run(passes)
        swaps = np.array(array.lanes.accepted_at)[::batch]
        period = max(p.load_cycles, batch * p.passes)
        array.bench.compare("cycles between tiles", np.full(len(swaps) - 1, period), np.diff(swaps))
        work = batch * p.passes * (len(swaps) - 1)
        used = round(float(work / (swaps[-1] - swaps[0])), 4)
        record_fact("utilization_by_batch", str(batch), used)


@cocotb.test()
async def recomputed_tokens(dut: Any) -> None:
    """Add recomputed tokens to a batch: each costs exactly one cycle per tile."""
    p = catalog_parameters()
    batch, recomputed = 16, 5
    weights, activations = projection(open_layer(), LAYER, "k_proj", p, batch + recomputed)
    inputs = 4 * p.rows
    cycles = []
    for count in (batch, batch + recomputed):
        operands = (weights[:inputs], activations[:count, :inputs])
        array = Array(dut, "recomputed_tokens")
        passes = list(passes_of(operands, p, outputs=2))
        await array.run(passes)
        cycles.append(array.cycles)
    extra = recomputed * p.passes * len(passes)
    array.bench.compare("extra cycles", np.array([extra]), np.array([cycles[1] - cycles[0]]))


@cocotb.test()
async def attention(dut: Any) -> None:
    """Compute scores with transposed keys and outputs with values, as byte passes of heads."""
    p = catalog_parameters()
    trace = open_layer()
    tokens = TOKENS if p.rows >= 32 else 4 * p.rows
    passes: list[TilePass] = []
    for kv_head in range(trace.kv_heads):
        keys = scores_operands(trace, LAYER, kv_head, p, tokens)
        passes += passes_of(keys, p, transposed=True, wide=True)
        values = values_operands(trace, LAYER, kv_head, p, tokens)
        passes += passes_of(values, p, wide=True)
    array = Array(dut, "attention")
    await array.run(passes)
    # With few vectors per tile, only the load limits the rate: one tile every `load_cycles`.
    starts = np.cumsum([0] + [len(item.vectors) for item in passes[:-1]])
    swaps = np.array(array.lanes.accepted_at)[starts]
    period = max(p.load_cycles, len(passes[0].vectors) * p.passes)
    array.bench.compare("cycles between tiles", np.full(len(swaps) - 1, period), np.diff(swaps))


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run tiles and vectors at the ends of their ranges, with modes and tiles back to back."""
    array = Array(dut, "extremes")
    await array.run(some_passes(array, 200))


stalls = stall_test(Array, lambda array: some_passes(array, 24))
resets = reset_test(
    Array,
    lambda array: some_passes(array, 12),
    longest=lambda array: 6 * array.p.rows,
    times=10,
    after=Array.check_silence,
)
