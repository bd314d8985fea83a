"""The floating-point multiplier: model against SoftFloat, emitted Verilog against both."""

from dataclasses import replace

import numpy as np
import pytest

from golden.arith.float_multiply import float_multiply
from golden.arith.float_round import encode, read
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN
from hdl.arith.float_multiply import FloatMultiply
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, pairs, random_codes
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, VARIANTS, assert_same, canonical

pytestmark = pytest.mark.depends()


def test_all_pairs_of_corners() -> None:
    a, b = pairs(BINARY16)
    assert len(a) > 40_000
    expected = canonical(BINARY16, softfloat("f16_mul", a, b))
    assert_same(BINARY16, float_multiply(BINARY16, a, b), expected, a, b)
    assert_same(BINARY16, run_bulk(FloatMultiply(), {"a": a, "b": b})["result"], expected, a, b)


@pytest.mark.parametrize("count", COUNTS)
def test_random_pairs(count: int) -> None:
    generator = np.random.default_rng(1)
    for size in chunks(count):
        a, b = (random_codes(BINARY16, size, generator) for _operand in range(2))
        expected = canonical(BINARY16, softfloat("f16_mul", a, b))
        assert_same(BINARY16, float_multiply(BINARY16, a, b), expected, a, b)
        result = run_bulk(FloatMultiply(), {"a": a, "b": b})["result"]
        assert_same(BINARY16, result, expected, a, b)


def test_longer_operand() -> None:
    """Test three extra mantissa bits, as in reciprocals, and the product of the significands."""
    a, b = pairs(BINARY16)
    rng = np.random.default_rng(6)
    a = np.concatenate([a, random_codes(BINARY16, 50_000, rng)]).astype(np.uint64)
    b = np.concatenate([b, random_codes(BINARY16, 50_000, rng)]).astype(np.uint64)
    # A subnormal operand has no extra mantissa bits.
    normal = (b >> 10 & 31 > 0) & (b >> 10 & 31 < 31)
    b = b << 3 | np.where(normal, rng.integers(0, 8, len(b)), 0).astype(np.uint64)
    results = run_bulk(FloatMultiply(extra_bits=3, exact=True), {"a": a, "b": b})
    longer = replace(BINARY16, mantissa_bits=13)
    with np.errstate(invalid="ignore"):
        expected = encode(BINARY16, read(BINARY16, a) * read(longer, b))
    assert_same(BINARY16, results["result"], expected, a, b)
    significands = [
        (code & (1 << bits) - 1) | (code >> bits & 31 > 0).astype(np.uint64) << bits
        for code, bits in ((a, 10), (b, 13))
    ]
    assert np.array_equal(results["product"], significands[0] * significands[1])


@pytest.mark.full
def test_binary32() -> None:
    generator = np.random.default_rng(2)
    corner_a, corner_b = pairs(BINARY32)
    a = np.concatenate([corner_a, random_codes(BINARY32, 200_000, generator)])
    b = np.concatenate([corner_b, random_codes(BINARY32, 200_000, generator)])
    expected = canonical(BINARY32, softfloat("f32_mul", a, b))
    assert_same(BINARY32, float_multiply(BINARY32, a, b), expected, a, b)
    unit = FloatMultiply(number_format=BINARY32)
    assert_same(BINARY32, run_bulk(unit, {"a": a, "b": b})["result"], expected, a, b)


@pytest.mark.parametrize("variants", VARIANTS)
def test_saturating_and_pipelined(variants: list[tuple[bool, int]]) -> None:
    generator = np.random.default_rng(3)
    corner_a, corner_b = pairs(BINARY16)
    a = np.concatenate([corner_a, random_codes(BINARY16, 50_000, generator)])
    b = np.concatenate([corner_b, random_codes(BINARY16, 50_000, generator)])
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatMultiply(saturate=saturate, stages=stages)
        for saturate, stages in variants
    }
    results = run_bank(units, {name: {"a": a, "b": b} for name in units})
    for name, unit in units.items():
        expected = float_multiply(BINARY16, a, b, saturate=unit.saturate)
        assert_same(BINARY16, results[name]["result"], expected, a, b)
        if unit.saturate:
            assert np.all((expected & 0x7FFF) <= BINARY16.max_finite)


def test_paused() -> None:
    a, b = pairs(BINARY16)
    unit = FloatMultiply(stages=2, enable=True)
    result = run_bulk(unit, {"a": a, "b": b}, pauses=1)["result"]
    assert_same(BINARY16, result, float_multiply(BINARY16, a, b), a, b)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"number_format": FP8_E4M3FN}, "number_format must be a signed IEEE format"),
        ({"extra_bits": 9}, "extra_bits must be an integer from 0 to 8, not 9"),
        ({"exact": None}, "exact must be one of False, True, not None"),
        ({"saturate": 2}, "saturate must be one of False, True, not 2"),
        ({"stages": -1}, "stages must be an integer from 0 to 64, not -1"),
        ({"stages": 65}, "stages must be an integer from 0 to 64, not 65"),
        ({"enable": "yes"}, "enable must be one of False, True, not 'yes'"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatMultiply(**arguments)
