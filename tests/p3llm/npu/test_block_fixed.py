"""Block floating point's model: the largest number fills its bits, the error is half a step."""

import re

import numpy as np
import pytest

from golden.p3llm.npu.block_fixed import block_fixed
from hdl.p3llm.npu.block_fixed import BlockFixedParameters

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("spare", [0, 1])
def test_the_largest_number_fills_the_bits(spare: int) -> None:
    """It is clamped by one step only if it is rounded up to the next power of two."""
    powers = RNG.integers(-100, 100, (5000, 1)) - RNG.integers(0, 20, (5000, 12))
    vectors = np.ldexp(RNG.uniform(-2, 2, (5000, 12)), powers).astype(np.float32)
    raw, point = block_fixed(vectors, spare=spare)
    exact = np.ldexp(vectors.astype(np.float64), point[:, np.newaxis])
    largest, bits = np.abs(raw).max(axis=-1), 15 - spare
    assert largest.min() >= 1 << bits - 1 and largest.max() <= 1 << bits
    assert np.abs(raw - exact)[exact < (1 << 15) - 1].max() <= 0.5
    assert np.abs(raw - exact).max() < 1


@pytest.mark.parametrize(
    ("vector", "raw", "point"),
    [
        ([0.0, -0.0], [0, 0], 141),
        ([2.0**-126, -(2.0**-127)], [1 << 14, 0], 140),
        ([1.5 * 2.0**127, 1.0], [3 << 13, 0], -113),
        ([np.inf, -(2.0**126)], [(1 << 15) - 1, -4096], -114),
        ([-np.inf, np.nan], [-(1 << 15), (1 << 15) - 1], -114),
    ],
)
def test_both_ends(vector: list[float], raw: list[int], point: int) -> None:
    """Subnormal numbers are treated as zeros; infinities and NaNs have the largest exponent."""
    got, points = block_fixed(np.array([vector], np.float32))
    assert got[0].tolist() == raw
    assert points.tolist() == [point]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"slices": 1}, "slices must be an integer from 2 to 4000, not 1"),
        ({"vectors": 17}, "vectors must be an integer from 1 to 16, not 17"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        BlockFixedParameters(**change)
