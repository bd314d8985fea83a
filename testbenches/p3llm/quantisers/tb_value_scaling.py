"""Testbench of the second-level scaling: SmolLM2's values, edges, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import LARGEST, codes, values
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.p3llm.quantisers.value_scaling import value_scaling
from hdl.p3llm.quantisers.extreme import extreme_stages
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace
from testbenches.packing import pack, to_integers
from testbenches.slices import full_rate_cycles
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

Codes = NDArray[np.int64]
Row = tuple[Codes, Codes]
"""Scales and probabilities of a head, of equal length."""

QUERIES = 4


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


class ScalingBench:
    """The unit's three streams."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        scales: str = "none",
        probabilities: str = "none",
        results: str = "none",
    ) -> None:
        self.p = p = catalog_parameters()
        self.slices = StreamBench(
            dut,
            salt,
            source=("scales", p.slice_layout),
            sink=("results", p.result_layout),
            pauses=(scales, results),
        )
        self.bench = self.slices.bench
        self.probabilities = self.bench.source("probabilities", probabilities)

    def fields(self, rows: list[Codes]) -> Fields:
        """Cut rows into slices."""
        last = np.zeros(sum(map(len, rows)) // self.p.lanes, np.int64)
        last[np.cumsum([len(row) // self.p.lanes for row in rows]) - 1] = 1
        return {"values": np.concatenate(rows).reshape(-1, self.p.lanes), "last": last}

    async def run(self, rows: list[Row]) -> int:
        """Run rows and compare everything; return the cycles."""
        scales = self.fields([row[0] for row in rows])
        shares = self.fields([row[1] for row in rows])
        await self.bench.reset()
        self.slices.sink.received.clear()
        self.slices.source.send(to_integers(pack(self.p.slice_layout, scales)))
        self.probabilities.send(to_integers(pack(self.p.slice_layout, shares)))
        count = len(scales["last"])
        cycles = await self.bench.run(until=lambda: len(self.slices.sink.received) == count)
        for _ in range(20):
            await self.bench.step()
        scaled = [value_scaling(*row) for row in rows]
        largest = [np.repeat(top, len(row) // self.p.lanes) for row, top in scaled]
        values = np.concatenate([row for row, _ in scaled]).reshape(-1, self.p.lanes)
        self.slices.check(
            {"values": values, "largest": np.concatenate(largest), "last": scales["last"]}
        )
        return cycles

    def random_rows(self, count: int) -> list[Row]:
        """Return rows of random lengths, scales and probabilities."""
        rng, rows = self.bench.numpy_rng, []
        for length in rng.integers(2, self.p.slices + 1, count) * self.p.lanes:
            scales = rng.integers(0, 0x7C00, length) - (rng.integers(0, 24) << 10)
            rows.append((np.maximum(scales, 0), rng.integers(0, 0x3C01, length)))
        return rows

    def small_rows(self, count: int) -> list[Row]:
        """Return rows down to subnormal scales, quotients and probabilities.

        Half of the scales are slightly below the largest times a power of two, where the rounding
        of a quotient carries into its exponent; some quotients are midpoints of two subnormal
        numbers.
        """
        rng, rows = self.bench.numpy_rng, []
        for top in rng.integers(1, LARGEST + 1, count):
            # Half of all largest scales are powers of two.
            largest = top & 0x7C00 or 1 << top % 10 if rng.random() < 0.5 else top
            length = 2 * self.p.lanes
            below = largest - (rng.integers(0, 20, length) << 10) - rng.integers(0, 3, length)
            any_below = rng.integers(0, largest + 1, length)
            scales = np.maximum(np.where(rng.random(length) < 0.5, below, any_below), 0)
            if not largest & 0x3FF:
                half_steps = rng.integers(0, 1 << 10, length) * 2 + 1
                ties = np.ldexp(values(largest) * half_steps, -25).astype(np.float16)
                scales = np.where(rng.random(length) < 0.2, ties.view(np.uint16), scales)
            shares = rng.integers(0, 0x3C01, length)
            shares = np.where(rng.random(length) < 0.5, shares & 0x7FF, shares)
            if rng.random() < 0.5:
                # Products of few bits are ties, or close to ties.
                scales, shares = scales & 0x7F80, shares & 0x7F80
            scales[rng.integers(0, length)] = largest
            rows.append((scales, shares))
        return rows


def real_rows(p: Any) -> list[Row]:
    """Return scales of SmolLM2's values and the probabilities of its last queries."""
    rows = []
    for layer in LAYERS:
        for head in range(0, 9, 3):
            attention = trace().attention_trace(layer, head)
            scales = int4_quantiser(codes(attention.v))[2].reshape(-1)
            places = np.arange(p.tokens) % len(scales)
            for query in range(1, QUERIES + 1):
                shares = codes(attention.probabilities[-query])
                rows.append((scales[places].astype(np.int64), shares[places].astype(np.int64)))
    return rows


@cocotb.test()
async def real(dut: Any) -> None:
    """Scale SmolLM2's probabilities at full rate; results are bit-identical."""
    bench = ScalingBench(dut, "real")
    p, rows = bench.p, real_rows(bench.p)
    cycles = await bench.run(rows)
    slices = [p.slices] * len(rows)
    latency = extreme_stages(p.lanes) + p.divide_stages + p.multiply_stages + 2
    read_latency = p.divide_stages + p.multiply_stages + 2
    expected = full_rate_cycles(slices, rows=p.rows, latency=latency, read_latency=read_latency)
    bench.bench.compare("cycles", np.array([expected]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, {len(rows)} rows of probabilities"
    bench.bench.record(cycles=cycles, ideal_cycles=sum(slices) + p.slices, tensors=tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """All zero, all equal, tiny, huge, infinities and NaNs, mantissas of one bit."""
    bench = ScalingBench(dut, "extremes")
    tokens, rng = bench.p.tokens, bench.bench.numpy_rng
    one_bit = 1 << rng.integers(0, 10, tokens)
    scales = [np.full(tokens, code) for code in (0, 1, 0x3C00, 0x7BFF, 0x7C00, 0x7E00)]
    scales += [rng.integers(0, 1 << 15, tokens) * rng.integers(0, 2, tokens) for _ in range(4)]
    scales += [0x7C00 * rng.integers(0, 2, tokens) | one_bit]
    shares = [np.full(tokens, code) for code in (0, 1, 0x3C00, 0x7BFF, 0x7C00)]
    shares += [rng.integers(0, 1 << 16, tokens), 0x7C00 | rng.integers(0, 1 << 16, tokens)]
    shares += [0x7C00 | one_bit]
    await bench.run([(scale, share) for scale in scales for share in shares])


@cocotb.test()
async def small(dut: Any) -> None:
    """Subnormal numbers in every place, and quotients that round up to a power of two."""
    bench = ScalingBench(dut, "small")
    await bench.run(bench.small_rows(8192 // bench.p.lanes))


@cocotb.test()
@cocotb.parametrize(scales=list(PAUSES), results=list(PAUSES))
async def stalls(dut: Any, scales: str, results: str) -> None:
    """Random rows under every pair of stall patterns; the probabilities stall at random."""
    bench = ScalingBench(dut, f"stalls {scales} {results}", scales, "random", results)
    await bench.run(bench.random_rows(8))


@cocotb.test()
@cocotb.parametrize(probabilities=list(PAUSES))
async def late_probabilities(dut: Any, probabilities: str) -> None:
    """Send probabilities under every stall pattern, all other data at full rate."""
    bench = ScalingBench(dut, f"late {probabilities}", "none", probabilities, "none")
    await bench.run(bench.random_rows(8))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; results after the reset do not depend on earlier data."""
    bench = ScalingBench(dut, "resets", "random", "bursty", "random")
    rows = bench.random_rows(6)
    slices = bench.fields([row[0] for row in rows])
    await bench.slices.disturb(slices, times=6, longest=3 * bench.p.slices + 20)
    await bench.run(rows)
