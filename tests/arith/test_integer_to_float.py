"""Integers as binary32 and back: models by fractions, Verilog against the models."""

from fractions import Fraction

import numpy as np
import pytest

from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.integer_to_float import integer_to_float
from hdl.arith.float_format import BINARY32
from hdl.arith.float_to_fixed import FloatToFixed
from hdl.arith.integer_to_float import IntegerToFloat
from testbenches.arith.bulk import run_bulk

COUNT = 50_000


def drawn_integers(width: int, rng: np.random.Generator) -> np.ndarray:
    """Draw integers of all magnitudes, and the ends of the range."""
    lengths = rng.integers(1, width, COUNT)
    numbers = rng.integers(-(1 << 52), 1 << 52, COUNT) >> (52 - np.minimum(lengths, 52))
    # Ties: a one behind the 24 digits that are kept.
    ties = (rng.integers(1 << 23, 1 << 24, COUNT) * 2 + 1) << rng.integers(0, 23, COUNT)
    top = (1 << width - 1) - 1
    numbers = np.where(rng.random(COUNT) < 0.2, ties, numbers)
    return np.concatenate([np.clip(numbers, -top - 1, top), [0, 1, -1, top, -top - 1]])


@pytest.mark.parametrize(("width", "stages"), [(16, 0), (32, 1), (48, 2)])
def test_integers_become_floats(width: int, stages: int) -> None:
    rng = np.random.default_rng(width)
    numbers = drawn_integers(width, rng)
    point = rng.integers(-140, 200, len(numbers))
    expected = integer_to_float(numbers, point)
    unit = IntegerToFloat(width=width, stages=stages)
    got = run_bulk(unit, {"a": numbers & ((1 << width) - 1), "point": point & 1023})["result"]
    np.testing.assert_array_equal(got, expected.view(np.uint32))


def test_the_model_of_floats_is_the_nearest() -> None:
    rng = np.random.default_rng(1)
    numbers, point = drawn_integers(48, rng)[-2000:], 18
    got = integer_to_float(numbers, np.full(len(numbers), point)).view(np.uint32)
    for number, code in zip(numbers.tolist(), got.tolist(), strict=True):
        assert code == BINARY32.from_fraction(Fraction(number, 1 << point))


def drawn_floats(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw numbers near and beyond the integers' range, halves among them, and binary points."""
    point = rng.integers(-120, 130, COUNT)
    halves = rng.integers(-70_000, 70_000, COUNT) / 2 + rng.choice([0, 1e-3, 2.0**-9], COUNT)
    spread = rng.normal(size=COUNT) * np.exp2(rng.integers(-20, 40, COUNT))
    numbers = np.where(rng.random(COUNT) < 0.7, halves, spread)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(numbers, -point).astype(np.float32), point


@pytest.mark.parametrize("stages", [0, 1, 2])
def test_floats_become_integers(stages: int) -> None:
    numbers, point = drawn_floats(np.random.default_rng(stages))
    expected = float_to_fixed(numbers, point)
    operands = {"a": numbers.view(np.uint32), "point": point & 1023}
    got = run_bulk(FloatToFixed(stages=stages), operands)["result"]
    np.testing.assert_array_equal(got.astype(np.int64), expected & 0xFFFF)


def test_the_model_of_integers_is_the_nearest() -> None:
    numbers, point = drawn_floats(np.random.default_rng(9))
    pick = np.isfinite(numbers) & (np.abs(numbers) >= np.finfo(np.float32).tiny)
    for number, places, got in list(
        zip(
            numbers[pick].tolist(),
            point[pick].tolist(),
            float_to_fixed(numbers[pick], point[pick]).tolist(),
            strict=True,
        )
    )[:2000]:
        exact = round(Fraction(number) * Fraction(2) ** places)
        assert got == max(-(1 << 15), min((1 << 15) - 1, exact))
