"""Integers to binary32 and back: models against fractions, Verilog against the models."""

from fractions import Fraction

import numpy as np
import pytest

from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.integer_to_float import integer_to_float
from hdl.arith.float_format import BINARY32
from hdl.arith.float_to_fixed import FloatToFixed
from hdl.arith.integer_to_float import IntegerToFloat
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import floats_near_integers, integers_of_all_sizes

COUNT = 50_000


@pytest.mark.parametrize(("width", "stages"), [(16, 0), (32, 1), (48, 2)])
def test_integers_become_floats(width: int, stages: int) -> None:
    rng = np.random.default_rng(width)
    numbers = integers_of_all_sizes(width, COUNT, rng)
    point = rng.integers(-140, 200, len(numbers))
    expected = integer_to_float(numbers, point)
    unit = IntegerToFloat(width=width, stages=stages)
    got = run_bulk(unit, {"a": numbers & ((1 << width) - 1), "point": point & 1023})["result"]
    np.testing.assert_array_equal(got, expected.view(np.uint32))


def test_float_model_returns_the_nearest() -> None:
    rng = np.random.default_rng(1)
    numbers, point = integers_of_all_sizes(48, COUNT, rng)[-2000:], 18
    got = integer_to_float(numbers, np.full(len(numbers), point)).view(np.uint32)
    for number, code in zip(numbers.tolist(), got.tolist(), strict=True):
        assert code == BINARY32.from_fraction(Fraction(number, 1 << point))


@pytest.mark.parametrize("stages", [0, 1, 2])
def test_floats_become_integers(stages: int) -> None:
    numbers, point = floats_near_integers(COUNT, np.random.default_rng(stages))
    expected = float_to_fixed(numbers, point)
    operands = {"a": numbers.view(np.uint32), "point": point & 1023}
    got = run_bulk(FloatToFixed(stages=stages), operands)["result"]
    np.testing.assert_array_equal(got.astype(np.int64), expected & 0xFFFF)


def test_integer_model_returns_the_nearest() -> None:
    numbers, point = floats_near_integers(COUNT, np.random.default_rng(9))
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
