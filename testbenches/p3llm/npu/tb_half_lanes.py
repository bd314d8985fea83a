"""Testbench of the conversion to FP16: SmolLM2's states and probabilities, any numbers."""

import numpy as np

from golden.p3llm.npu.half_lanes import half_lanes
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
    """Return hidden states in binary32 and probabilities of 16 bits, in alternating slices."""
    states = np.concatenate([trace().hidden(layer)[0][-SHOWN:].reshape(-1) for layer in LAYERS])
    shares = [trace().attention_trace(layer, 0).probabilities[-SHOWN:] for layer in LAYERS]
    integers = np.rint(np.ldexp(np.concatenate(shares).reshape(-1), 16)).astype(np.int64)
    slices = min(len(states), len(integers)) // lanes
    used = slices * lanes
    fields = {
        "whole": np.arange(slices) % 2,
        "integers": integers[:used].reshape(-1, lanes),
        "point": np.full(slices, 16),
        "singles": singles(states[:used]).reshape(-1, lanes),
    }
    return fields, f"SmolLM2 layers {LAYERS}, {SHOWN} tokens: states and probabilities"


def random_slices(rng: np.random.Generator, slices: int, lanes: int) -> Fields:
    """Generate numbers of all magnitudes; a third is near a midpoint of two FP16 numbers."""
    shape = (slices, lanes)
    halves = rng.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    ties = (singles(halves) | 1 << 12) + rng.integers(-1, 2, shape)
    kind = rng.integers(0, 3, shape)
    numbers = np.where(kind == 0, ties, any_singles(rng, slices * lanes).reshape(shape))
    near = singles(rng.normal(size=shape) * np.exp2(rng.integers(-28, 18, shape)))
    integers = rng.integers(-(1 << 16), 1 << 16, shape) >> rng.integers(0, 17, shape)
    integers = np.where(rng.integers(0, 9, shape) == 0, -(1 << 16), integers)
    point = np.where(rng.integers(0, 4, slices) == 0, -512, -2)
    return {
        "whole": rng.integers(0, 2, slices),
        "integers": integers,
        "point": rng.integers(point, np.where(point == -2, 42, 512)),
        "singles": np.where(kind == 1, near, numbers),
    }


real, any_numbers, stalls, resets = lanes_tests(half_lanes, real_slices, random_slices, latency=3)
