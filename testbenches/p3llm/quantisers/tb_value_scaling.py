"""Testbench of the second-level scaling: SmolLM2's values, edges, stalls, resets."""

from functools import partial
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
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
from testbenches.slices import full_rate_cycles
from testbenches.unit_bench import Fields, UnitBench

Codes = NDArray[np.int64]
Row = tuple[Codes, Codes]
"""Scales and probabilities of a head, of equal length."""
Rows = list[Row]

QUERIES = 4


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


class ScalingBench(UnitBench[Rows]):
    """The unit's three streams."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        probabilities: str = "none",
    ) -> None:
        p = catalog_parameters()
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"scales": p.slice_layout, "probabilities": p.slice_layout},
            outputs={"results": p.result_layout},
            offered=lambda rows: {
                "scales": self.fields([row[0] for row in rows]),
                "probabilities": self.fields([row[1] for row in rows]),
            },
            expected=lambda rows: {"results": self.results_of(rows)},
            patterns={"probabilities": probabilities},
        )

    def fields(self, rows: list[Codes]) -> Fields:
        """Cut rows into slices."""
        last = np.zeros(sum(map(len, rows)) // self.p.lanes, np.int64)
        last[np.cumsum([len(row) // self.p.lanes for row in rows]) - 1] = 1
        return {"values": np.concatenate(rows).reshape(-1, self.p.lanes), "last": last}

    def results_of(self, rows: Rows) -> Fields:
        """Return the slices of scaled rows."""
        scaled = [value_scaling(*row) for row in rows]
        largest = [np.repeat(top, len(row) // self.p.lanes) for row, top in scaled]
        return {**self.fields([row for row, _top in scaled]), "largest": np.concatenate(largest)}

    def random_rows(self, count: int) -> Rows:
        """Return rows of random lengths, scales and probabilities."""
        rng, rows = self.bench.numpy_rng, []
        for length in rng.integers(2, self.p.slices + 1, count) * self.p.lanes:
            scales = rng.integers(0, 0x7C00, length) - (rng.integers(0, 24) << 10)
            rows.append((np.maximum(scales, 0), rng.integers(0, 0x3C01, length)))
        return rows

    def small_rows(self, count: int) -> Rows:
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


def real_rows(p: Any) -> Rows:
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


stalls = stall_test(
    partial(ScalingBench, probabilities="random"), lambda bench: bench.random_rows(8)
)
slow_stream = slow_stream_test(
    ScalingBench, lambda bench: bench.random_rows(8), streams=["probabilities"]
)
resets = reset_test(
    partial(ScalingBench, probabilities="random"),
    lambda bench: bench.random_rows(6),
    longest=lambda bench: 3 * bench.p.slices + 20,
    times=6,
)
