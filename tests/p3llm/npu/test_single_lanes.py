"""The model of binary32's lanes against the processor's float32."""

import numpy as np

from golden.p3llm.npu.single_lanes import single_lanes
from testbenches.p3llm.npu.tb_single_lanes import random_slices


def test_sums_and_products_are_those_of_float32() -> None:
    """Every NaN is the quiet one of sign 0."""
    fields = random_slices(np.random.default_rng(1), 20_000, 4)
    values, addends = (
        fields[name].astype(np.uint32).view(np.float32) for name in ("values", "addends")
    )
    factors = (fields["factors"] / 1024).astype(np.float32)
    multiply = fields["multiply"][:, np.newaxis] == 1
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = np.where(multiply, values * factors, values + addends)
    # Random products must not be subnormal.
    tiny = np.finfo(np.float32).tiny
    assert not np.any(multiply & (numbers != 0) & (np.abs(numbers) < tiny))
    assert np.isnan(numbers).any() and np.isinf(numbers).any()
    expected = np.where(np.isnan(numbers), 0x7FC00000, numbers.view(np.uint32))
    np.testing.assert_array_equal(single_lanes(**fields), expected)
