"""Testbench of the systolic array: SmolLM2 projections and attention, stalls, resets, extremes."""

from collections.abc import Iterable
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.kelle.array.systolic_array import TilePass
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
from testbenches.streams import PAUSES

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
    """A bench that drives and monitors the array's streams, and its work."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        passes: Iterable[TilePass],
        *,
        vectors: str = "none",
        weights: str = "none",
    ) -> None:
        self.p: SystolicArrayParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.passes = list(passes)
        self.vectors = self.bench.source("vectors", vectors)
        self.weights = self.bench.source("weights", weights)
        self.lanes = self.bench.add(Lanes(self.bench, self.vectors, self.p))
        self.sums = np.concatenate([item.sums for item in self.passes])
        rng = self.bench.numpy_rng
        self.tags = rng.integers(0, 1 << self.p.tag_width, len(self.sums))
        self.beats = [beat for item in self.passes for beat in pack_weights(item.weights, self.p)]
        self.packed: list[int] = []
        for item in self.passes:
            tags = self.tags[len(self.packed) : len(self.packed) + len(item.vectors)]
            self.packed += pack_vectors(item, tags, self.p)

    def start(self) -> None:
        """Offer everything."""
        self.weights.send(self.beats)
        self.vectors.send(self.packed)

    async def run(self) -> None:
        """Reset, offer everything, and wait until the last result is output."""
        await self.bench.reset()
        self.start()
        await self.bench.run(until=lambda: self.vectors.idle and self.weights.idle)
        for _ in range(self.p.latency + self.p.rows):
            await self.bench.step()

    def check(self) -> None:
        """Compare all results."""
        self.lanes.check(self.sums, self.tags)

    @property
    def cycles(self) -> int:
        """Cycles from the first acceptance to the last result, both included."""
        accepted = self.lanes.accepted_at
        return accepted[-1] + self.p.latency + self.p.rows - accepted[0]


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
    array = Array(dut, "projections", passes)
    await array.run()
    array.check()
    # The paper's array takes one vector per cycle (two cycles with one multiplier), and is filled
    # and drained once. The constant is the additional latency of the design.
    products = p.passes * len(array.sums)
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
        array = Array(dut, f"batch of {batch}", passes_of(operands, p, outputs=2))
        await array.run()
        array.check()
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
        array = Array(dut, "recomputed_tokens", passes_of(operands, p, outputs=2))
        await array.run()
        array.check()
        cycles.append(array.cycles)
    extra = recomputed * p.passes * len(array.passes)
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
    array = Array(dut, "attention", passes)
    await array.run()
    array.check()
    # With few vectors per tile, only the load limits the rate: one tile every `load_cycles`.
    starts = np.cumsum([0] + [len(item.vectors) for item in passes[:-1]])
    swaps = np.array(array.lanes.accepted_at)[starts]
    period = max(p.load_cycles, len(passes[0].vectors) * p.passes)
    array.bench.compare("cycles between tiles", np.full(len(swaps) - 1, period), np.diff(swaps))


@cocotb.test()
@cocotb.parametrize(vectors=list(PAUSES), weights=list(PAUSES))
async def stalls(dut: Any, vectors: str, weights: str) -> None:
    """Run random tiles and modes with every pair of pause patterns."""
    salt = f"stalls {vectors} {weights}"
    p = catalog_parameters()
    passes = random_passes(Bench(dut, salt).numpy_rng, p, 24)
    array = Array(dut, salt, passes, vectors=vectors, weights=weights)
    await array.run()
    array.check()


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run tiles and vectors at the ends of their ranges, with modes and tiles back to back."""
    p = catalog_parameters()
    array = Array(dut, "extremes", random_passes(Bench(dut, "extremes").numpy_rng, p, 200))
    await array.run()
    array.check()


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation: the next run equals the golden model."""
    p = catalog_parameters()
    passes = random_passes(Bench(dut, "resets").numpy_rng, p, 12)
    array = Array(dut, "resets", passes, vectors="random", weights="bursty")
    for _ in range(10):
        await array.bench.reset()
        for _cycle in range(array.p.latency + array.p.rows):
            await array.bench.step()
        array.lanes.check(array.sums[:0], array.tags[:0])
        await array.bench.reset()
        array.start()
        for _cycle in range(array.bench.rng.randint(1, 6 * p.rows)):
            await array.bench.step()
    await array.run()
    array.check()
