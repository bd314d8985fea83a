"""Exact products of FP16 numbers in FP32: model against SoftFloat, emitted Verilog against both."""

import numpy as np
import pytest

from golden.arith.float_widening_multiply import float_widening_multiply
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FloatFormat
from hdl.arith.float_widening_multiply import FloatWideningMultiply
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, pairs, random_codes
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, assert_same, canonical

pytestmark = pytest.mark.depends()


def check(a: np.ndarray, b: np.ndarray) -> None:
    """Compare model and hardware with SoftFloat's FP32 product of the widened factors."""
    widened = (softfloat("f16_to_f32", operand) for operand in (a, b))
    expected = canonical(BINARY32, softfloat("f32_mul", *widened))
    assert_same(BINARY32, float_widening_multiply(BINARY16, BINARY32, a, b), expected, a, b)
    result = run_bulk(FloatWideningMultiply(), {"a": a, "b": b})["result"]
    assert_same(BINARY32, result, expected, a, b)


def test_all_pairs_of_corners() -> None:
    a, b = pairs(BINARY16)
    assert len(a) > 40_000
    check(a, b)


def test_all_codes_times_subnormals() -> None:
    every = np.arange(1 << 16, dtype=np.uint64)
    for other in (0x0001, 0x8003, 0x03FF, 0x0400, 0x7BFF):
        check(every, np.full_like(every, other))


@pytest.mark.parametrize("count", COUNTS)
def test_random_pairs(count: int) -> None:
    generator = np.random.default_rng(1)
    for size in chunks(count):
        check(*(random_codes(BINARY16, size, generator) for _operand in range(2)))


def test_products_are_exact() -> None:
    generator = np.random.default_rng(2)
    a, b = (random_codes(BINARY16, 100_000, generator) for _operand in range(2))
    with np.errstate(invalid="ignore"):
        exact = BINARY16.decode(a) * BINARY16.decode(b)
    product = BINARY32.decode(float_widening_multiply(BINARY16, BINARY32, a, b))
    np.testing.assert_array_equal(product, exact)


def test_pipelined() -> None:
    a, b = pairs(BINARY16)
    units = {f"stages_{stages}": FloatWideningMultiply(stages=stages) for stages in (1, 2, 3)}
    results = run_bank(units, {name: {"a": a, "b": b} for name in units})
    expected = float_widening_multiply(BINARY16, BINARY32, a, b)
    for name in units:
        assert_same(BINARY32, results[name]["result"], expected, a, b)


def test_paused() -> None:
    a, b = pairs(BINARY16)
    unit = FloatWideningMultiply(stages=2, enable=True)
    result = run_bulk(unit, {"a": a, "b": b}, pauses=1)["result"]
    assert_same(BINARY32, result, float_widening_multiply(BINARY16, BINARY32, a, b), a, b)


NARROW = FloatFormat(exponent_bits=8, mantissa_bits=7, bias=127)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"factor_format": FP8_E4M3FN}, "factor_format must be a signed IEEE format"),
        ({"product_format": FP8_E4M3FN}, "product_format must be a signed IEEE format"),
        ({"product_format": NARROW}, "every product of two factors must be exact and normal"),
        ({"stages": -1}, "stages must be an integer from 0 to 64, not -1"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatWideningMultiply(**arguments)
