"""Testbench of the lanes that make Q6.10: SmolLM2's gates and scores, any numbers."""

from typing import Any

import cocotb
import numpy as np

from golden.p3llm.npu.fixed_lanes import fixed_lanes
from testbenches.p3llm.npu.lanes_bench import (
    LAYERS,
    SHOWN,
    LanesBench,
    any_singles,
    singles,
    trace,
)
from testbenches.stream_bench import Fields
from testbenches.streams import PAUSES


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def real_slices(lanes: int) -> tuple[Fields, str]:
    """Return gates, and scores in base 2."""
    numbers = []
    for layer in LAYERS:
        gate = trace().linear(layer, "gate_proj")
        numbers.append(gate.inputs[-SHOWN:] @ gate.weight.T)
        numbers.append(trace().attention_trace(layer, 0).scores[-SHOWN:] * np.log2(np.e))
    flat = np.concatenate([part.reshape(-1) for part in numbers])
    flat = flat[: len(flat) // lanes * lanes]
    tensors = f"SmolLM2 layers {LAYERS}, {SHOWN} tokens: gates and scores"
    return {"values": singles(flat).reshape(-1, lanes)}, tensors


def drawn(rng: np.random.Generator, slices: int, lanes: int) -> Fields:
    """Draw numbers of all magnitudes; half of them near the range, and halves of a step."""
    shape = (slices, lanes)
    halves = rng.integers(-70_000, 70_000, shape) / 2048
    near = singles(halves) + rng.integers(-1, 2, shape)
    small = singles(rng.normal(size=shape) * np.exp2(rng.integers(-16, 8, shape)))
    near = np.where(rng.integers(0, 2, shape) == 0, near, small) & 0xFFFFFFFF
    numbers = any_singles(rng, slices * lanes).reshape(shape)
    return {"values": np.where(rng.integers(0, 3, shape) == 0, numbers, near)}


@cocotb.test()
async def real(dut: Any) -> None:
    """Make Q6.10 of SmolLM2's gates and scores at full rate, bit for bit."""
    bench = LanesBench(dut, "real", fixed_lanes)
    fields, tensors = real_slices(bench.p.lanes)
    await bench.run_at_full_rate(fields, latency=2, tensors=tensors)


@cocotb.test()
async def any_numbers(dut: Any) -> None:
    """Make Q6.10 of infinities, NaNs, subnormal numbers, ties, and both ends of the range."""
    bench = LanesBench(dut, "any_numbers", fixed_lanes)
    lanes = bench.p.lanes
    await bench.run_slices(drawn(bench.bench.numpy_rng, max(2000, 40_000 // lanes), lanes))


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Draw numbers, under every pair of pause patterns."""
    bench = LanesBench(dut, f"stalls {source} {sink}", fixed_lanes, source=source, sink=sink)
    await bench.run_slices(drawn(bench.bench.numpy_rng, 150, bench.p.lanes))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    bench = LanesBench(dut, "resets", fixed_lanes, source="random", sink="bursty")
    await bench.reset_within(drawn(bench.bench.numpy_rng, 60, bench.p.lanes))
