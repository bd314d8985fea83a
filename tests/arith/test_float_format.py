"""Number formats: every code of the narrow ones, constants, rounding, messages."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from golden.arith.float_round import encode, sum_to_odd
from hdl.arith.float_format import (
    BINARY16,
    BINARY32,
    FP8_E4M3FN,
    FP8_S0E4M4,
    FloatFormat,
    Specials,
)

FORMATS = [
    pytest.param(BINARY16, id="binary16"),
    pytest.param(FP8_E4M3FN, id="e4m3fn"),
    pytest.param(FP8_S0E4M4, id="s0e4m4"),
    pytest.param(FloatFormat(exponent_bits=5, mantissa_bits=2, bias=15), id="e5m2"),
]


@pytest.mark.parametrize("number_format", FORMATS)
def test_every_code(number_format: FloatFormat) -> None:
    codes = np.arange(1 << number_format.width)
    decoded = number_format.decode(codes)
    for code, value in zip(codes.tolist(), decoded.tolist(), strict=True):
        if number_format.is_nan(code):
            assert np.isnan(value)
        elif number_format.is_infinite(code):
            assert np.isinf(value)
        else:
            exact = number_format.to_fraction(code)
            assert exact == Fraction(value)
            assert number_format.from_fraction(value) == code


def test_decode_equals_numpy_and_ml_dtypes() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    half = codes.view(np.float16).astype(np.float64)
    assert np.array_equal(BINARY16.decode(codes), half, equal_nan=True)
    codes = np.arange(1 << 8, dtype=np.uint8)
    fp8 = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert np.array_equal(FP8_E4M3FN.decode(codes), fp8, equal_nan=True)
    assert np.array_equal(FP8_S0E4M4.decode(codes), BINARY16.decode(codes.astype(int) << 6))
    bits = np.random.default_rng(1).integers(0, 1 << 32, 100_000).astype(np.uint32)
    with np.errstate(invalid="ignore"):
        single = bits.view(np.float32).astype(np.float64)
    assert np.array_equal(BINARY32.decode(bits), single, equal_nan=True)


@pytest.mark.parametrize("number_format", FORMATS)
def test_codes_are_nearest(number_format: FloatFormat) -> None:
    """Test just below, at and just above the midpoint of adjacent numbers."""
    codes = range(0, number_format.max_finite, 1 + number_format.max_finite // 500)
    for code in codes:
        low, high = number_format.to_fraction(code), number_format.to_fraction(code + 1)
        middle, little = (low + high) / 2, (high - low) / 1000
        even = code if code % 2 == 0 else code + 1
        assert number_format.from_fraction(middle) == even
        assert number_format.from_fraction(middle - little) == code
        assert number_format.from_fraction(middle + little) == code + 1


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("number_format", [*FORMATS, pytest.param(BINARY32, id="binary32")])
def test_model_encodes_as_the_format(number_format: FloatFormat, saturate: bool) -> None:
    generator = np.random.default_rng(1)
    values = np.ldexp(generator.uniform(0.5, 1, 3000), generator.integers(-30, 20, 3000))
    if number_format.signed:
        values *= generator.choice([-1, 1], 3000)
    expected = [number_format.from_fraction(value, saturate=saturate) for value in values.tolist()]
    assert encode(number_format, values, saturate=saturate).tolist() == expected


def test_model_rounds_to_odd() -> None:
    """The exact sum lies between the neighbours of the result, and an inexact result is odd."""
    generator = np.random.default_rng(2)
    x = np.ldexp(generator.uniform(-1, 1, 2000), generator.integers(-60, 60, 2000))
    y = np.ldexp(generator.uniform(-1, 1, 2000), generator.integers(-60, 60, 2000))
    y[:500] = -x[:500] * (1 + 2.0**-40)
    totals = sum_to_odd(x, y)
    for one, two, total in zip(x.tolist(), y.tolist(), totals.tolist(), strict=True):
        exact = Fraction(one) + Fraction(two)
        if exact == Fraction(total):
            continue
        assert np.float64(total).view(np.int64) % 2 == 1
        low, high = np.nextafter(total, -np.inf), np.nextafter(total, np.inf)
        assert Fraction(float(low)) < exact < Fraction(float(high))


def test_binary64_is_the_largest_format() -> None:
    double = FloatFormat(exponent_bits=11, mantissa_bits=52, bias=1023)
    rng = np.random.default_rng(64)
    codes = rng.integers(0, 1 << 64, 4096, np.uint64, endpoint=False)
    ends = [0, 1, double.min_normal, double.max_finite, double.infinity, double.quiet_nan]
    ends += [code | double.sign_mask for code in ends]
    codes = np.concatenate([codes, np.array(ends, np.uint64)])
    values = codes.view(np.float64)
    assert np.array_equal(double.decode(codes), values, equal_nan=True)
    assert np.array_equal(double.decode(codes.astype(object)), values, equal_nan=True)
    assert double.show(0xBFF8000000000000) == "0xBFF8000000000000 (-1.5)"
    # Fractions with such exponents are slow: use the limits and an eighth of the random codes.
    few = slice(len(codes) - len(ends) - 512, None)
    for code, value in zip(codes[few].tolist(), values[few], strict=True):
        if np.isfinite(value):
            assert double.to_fraction(code) == Fraction(value)
            assert double.from_fraction(value) == code
    beyond = Fraction(2) ** 1024
    assert double.from_fraction(beyond) == double.infinity
    assert double.from_fraction(-beyond, saturate=True) == double.max_finite | double.sign_mask


def test_constants() -> None:
    assert (BINARY16.one, BINARY16.max_finite, BINARY16.min_normal) == (0x3C00, 0x7BFF, 0x0400)
    assert (BINARY16.infinity, BINARY16.quiet_nan, BINARY16.min_subnormal) == (0x7C00, 0x7E00, 1)
    assert (BINARY32.one, BINARY32.max_finite) == (0x3F800000, 0x7F7FFFFF)
    assert FP8_E4M3FN.decode(np.array(FP8_E4M3FN.max_finite)) == 448
    assert (FP8_E4M3FN.quiet_nan, FP8_E4M3FN.infinity) == (0x7F, None)
    assert FP8_S0E4M4.decode(np.array(FP8_S0E4M4.max_finite)) == 1.9375
    assert (FP8_S0E4M4.quiet_nan, FP8_S0E4M4.infinity) == (None, None)
    assert (FP8_S0E4M4.width, FP8_E4M3FN.width, BINARY16.width, BINARY32.width) == (8, 8, 16, 32)


def test_overflow() -> None:
    assert BINARY16.from_fraction(65519) == BINARY16.max_finite
    assert BINARY16.from_fraction(65520) == BINARY16.infinity
    assert BINARY16.from_fraction(-65520, saturate=True) == 0xFBFF
    assert FP8_E4M3FN.from_fraction(465) == FP8_E4M3FN.quiet_nan
    assert FP8_E4M3FN.from_fraction(465, saturate=True) == FP8_E4M3FN.max_finite
    assert FP8_S0E4M4.from_fraction(9) == FP8_S0E4M4.max_finite
    assert BINARY16.from_fraction(-0.0) == 0x8000


def test_layout() -> None:
    fields = [(name, field.offset, field.width) for name, field in BINARY16.layout]
    assert fields == [("mantissa", 0, 10), ("exponent", 10, 5), ("sign", 15, 1)]
    assert [name for name, _field in FP8_S0E4M4.layout] == ["mantissa", "exponent"]


def test_show() -> None:
    assert BINARY16.show(0x3C00) == "0x3C00 (1.0)"
    assert BINARY16.show(0xFC00) == "0xFC00 (-inf)"
    assert FP8_E4M3FN.show(0x7F) == "0x7F (nan)"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"exponent_bits": 1}, "exponent_bits must be an integer from 2 to 11, not 1"),
        ({"mantissa_bits": 0}, "mantissa_bits must be an integer from 1 to 52, not 0"),
        ({"bias": 16}, "bias must be an integer from 0 to 15, not 16"),
        ({"signed": 2}, "signed must be one of False, True, not 2"),
        ({"specials": "ieee"}, "specials must be one of"),
        ({"exponent_bits": 11, "bias": 500}, "every value of a format must be exact in float64"),
    ],
)
def test_bad_parameters(arguments: dict, rule: str) -> None:
    good = {"exponent_bits": 4, "mantissa_bits": 3, "bias": 7, "specials": Specials.IEEE}
    with pytest.raises(ValueError, match=rule):
        FloatFormat(**(good | arguments))


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="only a finite code has an exact value"):
        BINARY16.to_fraction(0x7C00)
    with pytest.raises(ValueError, match="only a finite value has a nearest code"):
        BINARY16.from_fraction(float("inf"))
    with pytest.raises(ValueError, match="an unsigned code needs value >= 0"):
        FP8_S0E4M4.from_fraction(-1)
    with pytest.raises(ValueError, match="a code must fit in 8 bits"):
        FP8_E4M3FN.show(256)
