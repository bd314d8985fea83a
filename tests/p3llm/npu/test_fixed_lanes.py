"""The model of Q6.10's lanes against fractions."""

from fractions import Fraction

import numpy as np

from golden.p3llm.npu.fixed_lanes import fixed_lanes
from testbenches.p3llm.npu.tb_fixed_lanes import random_slices

LEAST, MOST = -(1 << 15), (1 << 15) - 1


def test_the_nearest_step_is_taken() -> None:
    """Ties round to even; numbers beyond the limits, and NaNs, give the limit."""
    values = random_slices(np.random.default_rng(1), 2000, 2)["values"]
    numbers = values.astype(np.uint32).view(np.float32).reshape(-1)
    ends = 0
    for number, got in zip(numbers.tolist(), fixed_lanes(values).reshape(-1), strict=True):
        if np.isfinite(number):
            expected = max(LEAST, min(MOST, round(Fraction(number) * 1024)))
        else:
            expected = LEAST if np.signbit(number) else MOST
        ends += expected in (LEAST, MOST)
        assert got == expected
    assert 100 < ends < len(numbers) - 100
