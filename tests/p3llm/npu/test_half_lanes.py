"""The model of FP16's lanes against numpy's own conversions."""

import numpy as np

from golden.p3llm.npu.half_lanes import half_lanes
from testbenches.p3llm.npu.tb_half_lanes import random_slices


def test_it_rounds_once() -> None:
    """Compared with float64, which represents every operand: zeros, ties, subnormal and special."""
    fields = random_slices(np.random.default_rng(1), 20_000, 4)
    integers = np.ldexp(fields["integers"].astype(np.float64), -fields["point"][:, np.newaxis])
    with np.errstate(over="ignore", invalid="ignore"):
        singles = fields["singles"].astype(np.uint32).view(np.float32).astype(np.float64)
        exact = np.where(fields["whole"][:, np.newaxis] == 1, integers, singles)
        halves = exact.astype(np.float16)
    expected = np.where(np.isnan(halves), 0x7E00, halves.view(np.uint16))
    assert np.isnan(exact).any() and np.isinf(halves).any()
    # A binary point may move an integer below all numbers: its sign remains.
    np.testing.assert_array_equal(half_lanes(**fields), expected)
