"""Testbench of the E4M3 quantiser: SmolLM2's activations, edges, ties, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from hdl.p3llm.quantisers.extreme import extreme_stages
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import (
    LAYERS,
    SHOWN,
    alone,
    cut,
    e4m3_near_ties,
    edges,
    exact_scales,
    small,
    trace,
)
from testbenches.p3llm.quantisers.vector_bench import VectorBench
from testbenches.shared_tests import reset_test, stall_test


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def model(vectors: NDArray[np.int64]) -> dict[str, Any]:
    """Return the fields of the results."""
    codes, scales = e4m3_quantiser(vectors)
    return {"codes": codes, "scale": scales}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> VectorBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    return VectorBench(
        dut,
        salt,
        source,
        sink,
        model=model,
        latency=extreme_stages(p.lanes) + p.scale_stages + p.quotient_stages + 2,
        read_latency=p.quotient_stages + 2,
    )


def real_activations(width: int) -> NDArray[np.int64]:
    """Return inputs of linear layers, truncated or repeated to a width."""
    names = ("q_proj", "o_proj", "gate_proj", "down_proj")
    rows = [trace().linear(layer, name).inputs[-SHOWN:] for layer in LAYERS for name in names]
    return np.concatenate([cut(one, width) for one in rows])


@cocotb.test()
async def real(dut: Any) -> None:
    """Quantise the inputs of SmolLM2's linear layers at full rate; results are bit-identical."""
    bench = bench_for(dut, "real")
    vectors = bench.fewer(real_activations(bench.p.width))
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} inputs of linear layers"
    await bench.run_at_full_rate(vectors, tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """All zero, all equal, one sign, tiny, huge, infinities and NaNs."""
    bench = bench_for(dut, "extremes")
    width, lanes = bench.p.width, bench.p.lanes
    await bench.run(np.concatenate([edges(width), alone(width, lanes)]))


@cocotb.test()
async def small_magnitudes(dut: Any) -> None:
    """Every subnormal magnitude in every lane, with quotients of every length."""
    bench = bench_for(dut, "small")
    rng, width, lanes = bench.bench.numpy_rng, bench.p.width, bench.p.lanes
    await bench.run(small(rng, width, lanes, octaves=(0, 20)))


@cocotb.test()
async def ties(dut: Any) -> None:
    """Quotients that tie exactly, or only after float32's rounding."""
    bench = bench_for(dut, "ties")
    vectors = bench.random_vectors(4096 // bench.p.slices + 8)
    # 448 / 7 is a power of two: multiples of 7 divided by the largest tie without a remainder.
    vectors[::2, 0] = 0x7BFF & ~0x3FF | 7 * 128
    await bench.run(vectors)


@cocotb.test()
async def scales(dut: Any) -> None:
    """Scales of few bits, and quotients that are ties except for the scale's rounding."""
    bench = bench_for(dut, "scales")
    p, rng = bench.p, bench.bench.numpy_rng
    count = 4096 // p.slices + 8
    vectors = [exact_scales(rng, count, p.width, 7), e4m3_near_ties(rng, count, p.width)]
    await bench.run(np.concatenate(vectors))


stalls = stall_test(
    bench_for, lambda bench: bench.random_lengths(bench.fewer(bench.random_vectors(8)))
)
resets = reset_test(
    bench_for,
    lambda bench: bench.random_vectors(6),
    longest=lambda bench: 3 * bench.p.slices + 20,
    times=6,
)
