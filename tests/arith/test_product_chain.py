"""Products in lookup tables: all digits with all signs, and extremes of longer vectors."""

import numpy as np
import pytest
from amaranth.hdl import signed

from hdl.arith.operator import Operator
from hdl.arith.product_chain import ChainedDotProduct, ProductChain
from testbenches.arith.step import run_steps


def check(unit: Operator, a: np.ndarray, b: np.ndarray) -> None:
    """Compare all sums with numpy."""
    results = np.asarray(run_steps(unit, {"a": a, "b": b})["result"]).astype(np.int64)
    assert np.array_equal(results, (a * b).sum(axis=1))


@pytest.mark.parametrize("widths", [(3, 8), (8, 4)])
def test_all_products_equal_integers(widths: tuple[int, int]) -> None:
    a, b = (np.arange(-(1 << bits - 1), 1 << bits - 1) for bits in widths)
    pairs = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    unit = ProductChain(count=1, a=signed(widths[0]), b=signed(widths[1]))
    check(unit, pairs[:, :1], pairs[:, 1:])


@pytest.mark.parametrize(
    ("count", "bits", "stages", "enable"),
    [(1, 13, 1, True), (2, 8, 1, True), (3, 8, 0, False), (4, 8, 2, True)],
)
def test_extreme_sums_equal_integers(count: int, bits: int, stages: int, enable: bool) -> None:
    unit = ProductChain(count=count, a=signed(bits), b=signed(8), stages=stages, enable=enable)
    check(unit, *extremes(count, bits))


@pytest.mark.parametrize(("count", "stages"), [(16, 3), (5, 0)])
def test_dot_product_equals_integers(count: int, stages: int) -> None:
    unit = ChainedDotProduct(
        count=count, a=signed(8), b=signed(8), stages=stages, enable=stages > 0
    )
    check(unit, *extremes(count, 8))


def extremes(count: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of extremes, mixed extremes, and random vectors."""
    random = np.random.default_rng(count)
    low, high = (-(1 << bits - 1), -128), ((1 << bits - 1) - 1, 127)
    a, b = (random.integers(low[i], high[i] + 1, (60, count)) for i in range(2))
    for row in range(4):
        a[row], b[row] = (low, high)[row & 1][0], (low, high)[row >> 1][1]
    a[4:20] = np.where(a[4:20] < 0, low[0], high[0])
    b[12:28] = np.where(b[12:28] < 0, low[1], high[1])
    return a, b


def test_parameters_out_of_range() -> None:
    with pytest.raises(ValueError, match="count must be an integer from 1 to 4, not 5"):
        ProductChain(count=5, a=signed(8), b=signed(8))
    with pytest.raises(ValueError, match="b must be signed with an even number of bits"):
        ProductChain(count=1, a=signed(8), b=signed(7))
    with pytest.raises(ValueError, match="count must be an integer from 1 to 1024, not 0"):
        ChainedDotProduct(count=0, a=signed(8), b=signed(8))
