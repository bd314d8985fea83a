"""The multiplier without subnormal numbers: emitted Verilog against SoftFloat."""

import numpy as np
import pytest

from golden.arith.float_multiply import float_multiply
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, normal_products, pairs, random_codes
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, assert_same, canonical

pytestmark = pytest.mark.depends()


def check(a: np.ndarray, b: np.ndarray) -> None:
    """Compare the hardware with SoftFloat."""
    expected = canonical(BINARY32, softfloat("f32_mul", a, b))
    result = run_bulk(FloatNormalMultiply(), {"a": a, "b": b})["result"]
    assert_same(BINARY32, result, expected, a, b)


def test_all_pairs_of_corners() -> None:
    a, b = normal_products(BINARY32, *pairs(BINARY32))
    assert len(a) > 60_000
    check(a, b)


@pytest.mark.parametrize("count", COUNTS)
def test_random_pairs(count: int) -> None:
    """Test random factors, and factors of few digits, whose products are often ties."""
    generator = np.random.default_rng(1)
    for size in chunks(count):
        a, b = (random_codes(BINARY32, size, generator) for _operand in range(2))
        b[::4] &= np.uint64(~((1 << 18) - 1) & 0xFFFFFFFF)
        a[::4] &= np.uint64(~((1 << 5) - 1) & 0xFFFFFFFF)
        a, b = normal_products(BINARY32, a, b)
        assert len(a) > size // 4
        check(a, b)


def test_half_precision() -> None:
    a, b = normal_products(BINARY16, *pairs(BINARY16))
    expected = canonical(BINARY16, softfloat("f16_mul", a, b))
    result = run_bulk(FloatNormalMultiply(number_format=BINARY16), {"a": a, "b": b})["result"]
    assert_same(BINARY16, result, expected, a, b)


def test_pipelined() -> None:
    generator = np.random.default_rng(2)
    a, b = (random_codes(BINARY32, 50_000, generator) for _operand in range(2))
    a, b = normal_products(BINARY32, a, b)
    units = {f"stages_{stages}": FloatNormalMultiply(stages=stages) for stages in (1, 2, 3)}
    results = run_bank(units, {name: {"a": a, "b": b} for name in units})
    for name in units:
        assert_same(BINARY32, results[name]["result"], float_multiply(BINARY32, a, b), a, b)


def test_paused() -> None:
    a, b = normal_products(BINARY32, *pairs(BINARY32))
    unit = FloatNormalMultiply(stages=3, enable=True)
    result = run_bulk(unit, {"a": a, "b": b}, pauses=1)["result"]
    assert_same(BINARY32, result, float_multiply(BINARY32, a, b), a, b)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"number_format": FP8_E4M3FN}, "number_format must be a signed IEEE format"),
        ({"stages": -1}, "stages must be an integer from 0 to 64, not -1"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatNormalMultiply(**arguments)
