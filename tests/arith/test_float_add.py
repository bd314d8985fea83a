"""The floating-point adder: model against SoftFloat, emitted Verilog against both."""

import numpy as np
import pytest

from golden.arith.float_add import float_add
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16, BINARY32, FP8_S0E4M4, FloatFormat
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, pairs, random_codes, random_near
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, VARIANTS, assert_same, canonical

pytestmark = pytest.mark.depends()

FORMATS = [pytest.param(BINARY16, id="binary16"), pytest.param(BINARY32, id="binary32")]


@pytest.mark.parametrize("number_format", FORMATS)
def test_all_pairs_of_corners(number_format: FloatFormat) -> None:
    a, b = pairs(number_format)
    assert len(a) > 40_000
    expected = canonical(number_format, softfloat(f"f{number_format.width}_add", a, b))
    assert_same(number_format, float_add(number_format, a, b), expected, a, b)
    result = run_bulk(FloatAdd(number_format=number_format), {"a": a, "b": b})["result"]
    assert_same(number_format, result, expected, a, b)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("number_format", FORMATS)
def test_random_pairs(number_format: FloatFormat, count: int) -> None:
    generator = np.random.default_rng(1)
    unit = FloatAdd(number_format=number_format)
    for size in chunks(count):
        a = random_codes(number_format, size, generator)
        b = random_near(number_format, number_format.decode(a), generator)
        expected = canonical(number_format, softfloat(f"f{number_format.width}_add", a, b))
        assert_same(number_format, float_add(number_format, a, b), expected, a, b)
        assert_same(number_format, run_bulk(unit, {"a": a, "b": b})["result"], expected, a, b)


def test_subtraction() -> None:
    generator = np.random.default_rng(2)
    corner_a, corner_b = pairs(BINARY16)
    a = np.concatenate([corner_a, random_codes(BINARY16, 100_000, generator)])
    near = random_near(BINARY16, BINARY16.decode(a[len(corner_a) :]), generator)
    b = np.concatenate([corner_b, near])
    subtract = generator.integers(0, 2, len(a))
    sums, differences = (softfloat(f"f16_{name}", a, b) for name in ("add", "sub"))
    expected = canonical(BINARY16, np.where(subtract == 1, differences, sums))
    assert_same(BINARY16, float_add(BINARY16, a, b, subtract), expected, a, b)
    operands = {"a": a, "b": b, "subtract": subtract}
    result = run_bulk(FloatAdd(subtractor=True), operands)["result"]
    assert_same(BINARY16, result, expected, a, b)


@pytest.mark.parametrize("variants", VARIANTS)
def test_saturating_and_pipelined(variants: list[tuple[bool, int]]) -> None:
    a, b = pairs(BINARY16)
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatAdd(saturate=saturate, stages=stages)
        for saturate, stages in variants
    }
    results = run_bank(units, {name: {"a": a, "b": b} for name in units})
    for name, unit in units.items():
        expected = float_add(BINARY16, a, b, saturate=unit.saturate)
        assert_same(BINARY16, results[name]["result"], expected, a, b)
        if unit.saturate:
            assert np.all((expected & 0x7FFF) <= BINARY16.max_finite)


def test_paused() -> None:
    a, b = pairs(BINARY16)
    unit = FloatAdd(stages=4, enable=True)
    result = run_bulk(unit, {"a": a, "b": b}, pauses=1)["result"]
    assert_same(BINARY16, result, float_add(BINARY16, a, b), a, b)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"number_format": FP8_S0E4M4}, "number_format must be a signed IEEE format"),
        ({"subtractor": None}, "subtractor must be one of False, True, not None"),
        ({"saturate": 2}, "saturate must be one of False, True, not 2"),
        ({"stages": 1.5}, "stages must be an integer from 0 to 64, not 1.5"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatAdd(**arguments)
