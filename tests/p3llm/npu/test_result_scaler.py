"""The model of the scaler against the processor's float32."""

import numpy as np

from golden.p3llm.npu.result_scaler import result_scaler
from testbenches.p3llm.npu.tb_result_scaler import random_slices


def test_it_rounds_three_times() -> None:
    """The sum, the product of the factors, and theirs."""
    fields = random_slices(np.random.default_rng(1), 20_000, 4)
    # 48 bits are exact in float64; its rounding to binary32 is the only one.
    exact = np.ldexp(fields["sums"].astype(np.float64), -fields["point"][:, np.newaxis])
    factors = fields["factors"].astype(np.uint16).view(np.float16).astype(np.float32)
    common = fields["common"].astype(np.uint32).view(np.float32)[:, np.newaxis]
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        sums = exact.astype(np.float32)
        vanishes = np.abs(exact) < np.finfo(np.float32).tiny
        sums = np.where(vanishes, np.copysign(np.float32(0), sums), sums)
        numbers = sums * (factors * common)
    assert np.isnan(numbers).any() and np.isinf(numbers).any() and vanishes.any()
    expected = np.where(np.isnan(numbers), 0x7FC00000, numbers.view(np.uint32))
    np.testing.assert_array_equal(result_scaler(**fields), expected)
