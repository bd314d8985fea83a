"""Testbench of the scaler of integer sums: sums of SmolLM2's layers, any numbers."""

import numpy as np

from golden.arith.float_values import codes
from golden.p3llm.npu.result_scaler import result_scaler
from golden.p3llm.p3llm import Matrix
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from hdl.arith.float_format import BINARY32
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode
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

OUTPUTS = 256
"""Outputs per layer in a simulation."""


def real_slices(lanes: int) -> tuple[Fields, str]:
    """Return sums of gates, with the scales of their weights' rows and of their inputs."""
    sums, factors, common = [], [], []
    used = OUTPUTS // lanes * lanes
    for layer in LAYERS:
        linear = trace().linear(layer, "gate_proj")
        matrix = Matrix.quantised(linear.weight[:OUTPUTS], 64)
        for token in linear.inputs[-SHOWN:]:
            inputs, scale = e4m3_quantiser(codes(token))
            sums.append(matrix.sums(inputs)[:used])
            factors.append(matrix.scales[:used].astype(np.int64))
            wide = np.asarray(scale, np.uint16).view(np.float16).reshape(-1)[:1]
            common.append(np.repeat(singles(wide), used // lanes))
    fields = {
        "sums": np.concatenate(sums).reshape(-1, lanes),
        "factors": np.concatenate(factors).reshape(-1, lanes),
        "common": np.concatenate(common),
        "point": np.full(sum(map(len, common)), FRACTION_BITS[Mode.LINEAR]),
    }
    return fields, f"SmolLM2 layers {LAYERS}, {SHOWN} tokens, {OUTPUTS} gates"


def random_slices(rng: np.random.Generator, slices: int, lanes: int) -> Fields:
    """Generate sums of all magnitudes, any factors, and all binary points.

    A third of the products are ties, another third are next to powers of two.
    """
    shape = (slices, lanes)
    sums = rng.integers(-(1 << 47), 1 << 47, shape) >> rng.integers(0, 48, shape)
    # A one after the 24 significant digits: a tie.
    ties = (2 * rng.integers(1 << 23, 1 << 24, shape) + 1) << rng.integers(0, 22, shape)
    kind = rng.integers(0, 8, shape)
    sums = np.where(kind < 2, ties, np.where(kind == 2, -(1 << 47), sums))
    common = np.where(
        rng.integers(0, 3, slices) == 0,
        any_singles(rng, slices),
        singles(rng.normal(size=slices) * np.exp2(rng.integers(-40, 40, slices))),
    )
    common = np.where(common >> 23 & 0xFF == 0, 1 << 23, common)
    short = np.where(rng.integers(0, 4, slices) == 0, -512, -20)
    point = rng.integers(short, np.where(short == -512, 512, 50))
    factors = rng.integers(0, 1 << 16, shape)
    hard = rng.integers(0, 3, slices)
    short_sums, short_common = _few_digits(rng, shape)
    sums = np.where(hard[:, np.newaxis] == 1, short_sums, sums)
    common = np.where(hard == 1, short_common, common)
    factors = np.where(hard[:, np.newaxis] == 1, factors & 0x8000 | 0x3C00, factors)
    near_sums, near_common = _near_powers(rng, factors)
    return _normal(
        {
            "sums": np.where(hard[:, np.newaxis] == 2, near_sums, sums),
            "factors": factors,
            "common": np.where(hard == 2, near_common, common),
            "point": np.where(hard == 0, point, rng.integers(0, 30, slices)),
        }
    )


def _few_digits(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Codes, Codes]:
    """Generate sums and common factors of so few digits that many products are ties."""
    common = 0x3F800000 | (2 * rng.integers(0, 1 << 11, shape[0]) + 1) << 12
    sums = 2 * rng.integers(1 << 11, 1 << 12, shape) + 1
    return (sums << rng.integers(0, 30, shape)) * rng.choice((-1, 1), shape), common


def _near_powers(rng: np.random.Generator, factors: Codes) -> tuple[Codes, Codes]:
    """Generate sums and common factors with products next to, or rounded up to, powers of two."""
    numbers = factors.astype(np.uint16).view(np.float16).astype(np.float64)
    numbers = np.where(np.isfinite(numbers) & (numbers != 0), numbers, 1)
    # The common factor is close to the inverse of one of the slice's factors.
    of_lane = rng.permuted(numbers, axis=1)[:, 0]
    common = singles(1 / of_lane) + rng.integers(-1, 2, len(numbers))
    scale = numbers.astype(np.float32) * BINARY32.decode(common.astype(np.uint64))[:, np.newaxis]
    significand = np.abs(np.frexp(scale.astype(np.float32))[0].astype(np.float64))
    sums = np.rint((1 << 23) / significand).astype(np.int64)
    return sums + rng.integers(-1, 2, sums.shape), common


def _normal(fields: Fields) -> Fields:
    """Return slices without products below the normal numbers; such factors are replaced by 1."""
    sums, factors = fields["sums"], fields["factors"]
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = np.ldexp(sums.astype(np.float64), -fields["point"][:, np.newaxis])
        common = BINARY32.decode(fields["common"].astype(np.uint64))[:, np.newaxis]
        scales = factors.astype(np.uint16).view(np.float16).astype(np.float64) * common
        products = numbers * scales
    # A product that is rounded up to the smallest normal number counts as below it, too.
    least = 2.0**-125
    small = (scales != 0) & (np.abs(scales) < least)
    vanishes = (products != 0) & (np.abs(products) < least)
    return {
        **fields,
        "sums": np.where(small | vanishes, 0, sums),
        "factors": np.where(small, 0x3C00, factors),
    }


real, any_numbers, stalls, resets = lanes_tests(
    result_scaler, real_slices, random_slices, latency=8
)
