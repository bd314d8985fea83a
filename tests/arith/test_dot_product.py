"""Dot products: all small vectors, and long ones in both forms, compared with integers."""

import numpy as np
import pytest
from amaranth.hdl import Shape, signed

from hdl.arith.dot_product import GROUP, DotProduct
from hdl.target import Target, writing_for
from testbenches.arith.step import run_steps


@pytest.mark.parametrize("signs", [(True, True), (True, False), (False, False)])
def test_all_small_vectors(signs: tuple[bool, bool]) -> None:
    """Test every pair of vectors of three 2-bit elements."""
    a, b = (Shape(2, signed=is_signed) for is_signed in signs)
    words = np.indices((4,) * 6).reshape(6, -1).T
    elements = [
        np.where(is_signed & (half > 1), half - 4, half)
        for half, is_signed in zip((words[:, :3], words[:, 3:]), signs, strict=True)
    ]
    results = run_steps(DotProduct(count=3, a=a, b=b), dict(zip("ab", elements, strict=True)))
    expected = (elements[0] * elements[1]).sum(axis=1)
    assert np.array_equal(np.asarray(results["result"]).astype(np.int64), expected)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(
    ("count", "stages", "enable"), [(2 * GROUP + 1, 3, True), (GROUP, 1, False), (1, 0, False)]
)
def test_long_vectors(target: Target, count: int, stages: int, enable: bool) -> None:
    """Test extremes of INT8, which give the largest and smallest sums, and random vectors."""
    a, b = np.random.default_rng(count).integers(-128, 128, (2, 12, count))
    a[0], b[0], a[1], b[1], a[2], b[2] = -128, -128, -128, 127, 127, 127
    with writing_for(target):
        unit = DotProduct(count=count, a=signed(8), b=signed(8), stages=stages, enable=enable)
        results = run_steps(unit, {"a": a, "b": b})["result"]
    assert np.array_equal(np.asarray(results).astype(np.int64), (a * b).sum(axis=1))


def test_parameters_out_of_range() -> None:
    """The constructor reports the ranges."""
    with pytest.raises(ValueError, match="count must be an integer from 1 to 1024, not 0"):
        DotProduct(count=0, a=signed(8), b=signed(8))
    with pytest.raises(ValueError, match="bits of b must be an integer from 2 to 32, not 1"):
        DotProduct(count=2, a=signed(8), b=signed(1))
