"""Testbench of the INT4 quantiser: SmolLM2's keys and values, edges, ties, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from hdl.p3llm.quantisers.extreme import extreme_stages
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import (
    LAYERS,
    SHOWN,
    alone,
    between_ends,
    cut,
    edges,
    exact_scales,
    int4_near_ties,
    last_place_scales,
    near_halves,
    small,
    trace,
    zero_point_near_ties,
)
from testbenches.p3llm.quantisers.vector_bench import VectorBench
from testbenches.shared_tests import reset_test, stall_test


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def model(vectors: NDArray[np.int64]) -> dict[str, Any]:
    """Return the fields of the results."""
    codes, zero_points, scales = int4_quantiser(vectors)
    return {"codes": codes, "zero_point": zero_points, "scale": scales}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> VectorBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    return VectorBench(
        dut,
        salt,
        source,
        sink,
        model=model,
        latency=extreme_stages(p.lanes) + p.scale_stages + 2 * p.quotient_stages + 7,
        read_latency=p.quotient_stages + 2,
    )


def real_cache(width: int) -> NDArray[np.int64]:
    """Return keys and values of every head, truncated or repeated to a width."""
    rows = []
    for layer in LAYERS:
        for head in range(0, trace().heads, trace().heads // trace().kv_heads):
            attention = trace().attention_trace(layer, head)
            rows += [cut(part[-SHOWN:], width) for part in (attention.k, attention.v)]
    return np.concatenate(rows)


@cocotb.test()
async def real(dut: Any) -> None:
    """Keys and values of SmolLM2 at full rate; results are bit-identical."""
    bench = bench_for(dut, "real")
    vectors = bench.fewer(real_cache(bench.p.width))
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} keys and values"
    await bench.run_at_full_rate(vectors, tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """All zero, all equal, one sign, tiny, huge, infinities and NaNs."""
    bench = bench_for(dut, "extremes")
    width, lanes = bench.p.width, bench.p.lanes
    await bench.run(np.concatenate([edges(width), alone(width, lanes)]))


@cocotb.test()
async def small_magnitudes(dut: Any) -> None:
    """Every subnormal magnitude in every lane, with quotients that round to 0, 1 and 2."""
    bench = bench_for(dut, "small")
    rng, width, lanes = bench.bench.numpy_rng, bench.p.width, bench.p.lanes
    await bench.run(small(rng, width, lanes, octaves=(3, 6)))


@cocotb.test()
async def ties(dut: Any) -> None:
    """Quotients that tie exactly, or only after float32's rounding."""
    bench = bench_for(dut, "ties")
    vectors = bench.random_vectors(4096 // bench.p.slices + 8)
    # From -7.5 to 7.5 the scale is 1, and halves tie.
    vectors[::2, :2] = 0x4780, 0xC780
    vectors[::2, 2:] = vectors[::2, 2:] & 0x8000 | 0x3800 + (vectors[::2, 2:] & 15) * 0x80
    await bench.run(vectors)


@cocotb.test()
async def scales(dut: Any) -> None:
    """Scales of few bits, of distant extremes, and near ties of codes and zero points."""
    bench = bench_for(dut, "scales")
    p, rng = bench.p, bench.bench.numpy_rng
    count = 4096 // p.slices + 8
    # The minimum is zero, or so close to it that the scale lacks its last places.
    one_sided = exact_scales(rng, count, p.width, 15)
    one_sided[:, 1] = rng.integers(0, 2, count)
    one_sided[:, 2:] = np.maximum(one_sided[:, 2:], 1)
    near_ties = (int4_near_ties, zero_point_near_ties, near_halves, last_place_scales)
    vectors = [draw(rng, count, p.width) for draw in (between_ends, *near_ties)]
    await bench.run(np.concatenate([one_sided, *vectors]))


stalls = stall_test(
    bench_for, lambda bench: bench.random_lengths(bench.fewer(bench.random_vectors(8)))
)
resets = reset_test(
    bench_for,
    lambda bench: bench.random_vectors(6),
    longest=lambda bench: 3 * bench.p.slices + 20,
    times=6,
)
