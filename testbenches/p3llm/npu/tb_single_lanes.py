"""Testbench of the lanes of binary32: SmolLM2's residual sums and SwiGLU, any numbers."""

import numpy as np

from golden.llm.layers import silu
from golden.p3llm.npu.single_lanes import single_lanes
from hdl.arith.float_format import BINARY32
from testbenches.arith.float_operands import random_near
from testbenches.p3llm.npu.lanes_bench import (
    LAYERS,
    SHOWN,
    Codes,
    any_singles,
    lanes_tests,
    singles,
    trace,
)
from testbenches.p3llm.npu.lanes_bench import prepare as prepare
from testbenches.unit_bench import Fields


def real_slices(lanes: int) -> tuple[Fields, str]:
    """Return hidden states and outputs of attention; outputs of `up_proj` and SiLU of gates."""
    values, addends, factors = [], [], []
    for layer in LAYERS:
        values.append(trace().attention_output(layer)[-SHOWN:].reshape(-1))
        addends.append(trace().hidden(layer)[0][-SHOWN:].reshape(-1))
        gate, up = (trace().linear(layer, f"{name}_proj") for name in ("gate", "up"))
        inputs, count = gate.inputs[-SHOWN:], trace().hidden_size
        gated = silu(np.asarray(inputs @ gate.weight[:count].T, np.float64))
        values.append((inputs @ up.weight[:count].T).reshape(-1))
        factors.append(np.clip(np.rint(gated * 1024), -(1 << 15), (1 << 15) - 1).reshape(-1))
    part = len(factors[0]) // lanes * lanes
    slices = part // lanes
    multiply = np.tile(np.repeat([0, 1], slices), len(LAYERS))
    nothing = np.zeros(part)
    sums = [row for addend in addends for row in (addend[:part], nothing)]
    products = [row for factor in factors for row in (nothing, factor[:part])]
    fields = {
        "multiply": multiply,
        "values": singles(np.concatenate([row[:part] for row in values])).reshape(-1, lanes),
        "addends": singles(np.concatenate(sums)).reshape(-1, lanes),
        "factors": np.concatenate(products).astype(np.int64).reshape(-1, lanes),
    }
    return fields, f"SmolLM2 layers {LAYERS}, {SHOWN} tokens: residual and gated states"


def random_slices(rng: np.random.Generator, slices: int, lanes: int) -> Fields:
    """Generate any summands, many of which nearly cancel, and factors with normal products."""
    shape = (slices, lanes)
    values = any_singles(rng, slices * lanes).reshape(shape)
    numbers = BINARY32.decode(values.astype(np.uint64))
    addends = random_near(BINARY32, numbers.reshape(-1), rng).astype(np.int64).reshape(shape)
    factors = rng.integers(-(1 << 15), 1 << 15, shape) >> rng.integers(0, 16, shape)
    factors = np.where(rng.integers(0, 9, shape) == 0, -(1 << 15), factors)
    multiply = rng.integers(0, 2, slices)
    values = np.where(multiply[:, np.newaxis] == 1, _hard_products(rng, values, factors), values)
    numbers = BINARY32.decode(values.astype(np.uint64))
    # The smallest factor is 2**-10, so its operand is at least 2**-116, or zero.
    normal = (numbers == 0) | ~(np.abs(numbers) < 2.0**-116)
    small = ~normal & (multiply[:, np.newaxis] == 1)
    return {
        "multiply": multiply,
        "values": np.where(small, values & 0x807FFFFF | 0x3F800000, values),
        "addends": addends,
        "factors": factors,
    }


def _hard_products(rng: np.random.Generator, values: Codes, factors: Codes) -> Codes:
    """Return values; a third have products that are often ties, a third next to powers of two."""
    digits = rng.integers(1, 24, values.shape)
    short = (values >> digits | 1) << digits
    powers = np.exp2(rng.integers(-20, 20, values.shape))
    near = singles(powers / np.where(factors == 0, 1, factors)) + rng.integers(-1, 2, values.shape)
    kind = rng.integers(0, 3, values.shape)
    return np.where(kind == 0, values, np.where(kind == 1, short, near & 0xFFFFFFFF))


real, any_numbers, stalls, resets = lanes_tests(single_lanes, real_slices, random_slices, latency=4)
