"""Testbench of the conversion to Q6.10: SmolLM2's gates and scores, any numbers."""

import numpy as np

from golden.p3llm.npu.fixed_lanes import fixed_lanes
from testbenches.p3llm.npu.lanes_bench import (
    LAYERS,
    SHOWN,
    any_singles,
    lanes_tests,
    singles,
    trace,
)
from testbenches.p3llm.npu.lanes_bench import prepare as prepare
from testbenches.unit_bench import Fields


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


def random_slices(rng: np.random.Generator, slices: int, lanes: int) -> Fields:
    """Generate numbers of all magnitudes; half of them near the limits, or at midpoints."""
    shape = (slices, lanes)
    halves = rng.integers(-70_000, 70_000, shape) / 2048
    near = singles(halves) + rng.integers(-1, 2, shape)
    small = singles(rng.normal(size=shape) * np.exp2(rng.integers(-16, 8, shape)))
    near = np.where(rng.integers(0, 2, shape) == 0, near, small) & 0xFFFFFFFF
    numbers = any_singles(rng, slices * lanes).reshape(shape)
    return {"values": np.where(rng.integers(0, 3, shape) == 0, numbers, near)}


real, any_numbers, stalls, resets = lanes_tests(fixed_lanes, real_slices, random_slices, latency=2)
