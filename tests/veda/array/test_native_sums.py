"""Test that the processor's own sums equal those of the adders' models, code by code."""

import numpy as np
import pytest

from golden.veda.array import native_sums
from golden.veda.array.flexible_pe_array import emulated_inner_products, emulated_outer_sums
from hdl.arith.float_format import BINARY32
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters

ARRAYS = (
    FlexiblePeArrayParameters(rows=2, columns=4, planes=1, add_stages=2),
    FlexiblePeArrayParameters(rows=4, columns=2, planes=2, add_stages=3),
    FlexiblePeArrayParameters(rows=8, columns=8, planes=2, add_stages=4),
    FlexiblePeArrayParameters(rows=8, columns=8, planes=2, sum_format=BINARY32),
)


def random_codes(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return any codes, including NaNs and infinities; or small, large, or subnormal numbers."""
    if kind == "any":
        return rng.integers(0, 1 << 16, shape).astype(np.uint64)
    scale = {"normal": 1.0, "subnormal": 1e-6, "large": 3e4}[kind]
    with np.errstate(over="ignore"):
        return (scale * rng.normal(size=shape)).astype(np.float16).view(np.uint16).astype(np.uint64)


@pytest.mark.parametrize(
    "p", ARRAYS, ids=lambda p: f"{p.rows}x{p.columns}x{p.planes} {p.sum_format.width}"
)
@pytest.mark.parametrize("kind", ["any", "normal", "subnormal", "large"])
def test_native_sums_equal_the_models(p: FlexiblePeArrayParameters, kind: str) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 64):
        vectors, weights = (random_codes(rng, kind, (count, p.width)) for _ in range(2))
        split = rng.integers(0, 2, count).astype(np.uint64)
        assert np.array_equal(
            native_sums.inner_products(p, vectors, weights, split),
            emulated_inner_products(p, vectors, weights, split),
        )
        scalars, wide = (
            random_codes(rng, kind, (count, p.planes)),
            random_codes(rng, kind, (count, 4 * p.width)),
        )
        sums = native_sums.outer_sums(p, scalars, wide)
        assert np.array_equal(sums, emulated_outer_sums(p, scalars, wide))
