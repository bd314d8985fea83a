"""FP16 square root (correctly rounded) and its reciprocal (within 1 ulp), on all inputs."""

from fractions import Fraction
from math import isqrt

import mpmath
import numpy as np

from golden.arith.float_sqrt import lines, reciprocal_sqrt, sqrt
from hdl.arith.float_format import BINARY16
from hdl.arith.float_sqrt import FloatReciprocalSqrt, FloatSqrt, line_table
from testbenches.arith.bank import run_bank
from tests.arith.ulp import largest_error

FP16 = np.arange(1 << 16, dtype=np.uint16)
POSITIVE = FP16[1:0x7C00]


def test_root_model_is_correctly_rounded() -> None:
    """Test all positive numbers with integer square roots: ``floor(2**40 * sqrt(x))``.

    A tie would have a square with 24 significant bits. FP16 has none, so truncation after 2**-40
    cannot create one.
    """
    expected = []
    for bits in POSITIVE:
        scaled = BINARY16.to_fraction(int(bits)) * (1 << 80)
        assert scaled.denominator == 1
        expected.append(BINARY16.from_fraction(Fraction(isqrt(int(scaled)), 1 << 40)))
    assert np.array_equal(sqrt(POSITIVE), expected)


def test_reciprocal_root_error_over_all_arguments() -> None:
    """The documented bound is the measured maximum, relative to 80-bit values."""
    error = largest_error(reciprocal_sqrt(POSITIVE), POSITIVE, lambda x: 1 / mpmath.sqrt(x))
    assert 0.927 < error <= 0.928


def test_reciprocal_root_is_exact_at_even_powers_of_two() -> None:
    powers = [BINARY16.from_fraction(Fraction(4) ** power) for power in range(-12, 8)]
    roots = [BINARY16.from_fraction(Fraction(2) ** -power) for power in range(-12, 8)]
    assert reciprocal_sqrt(np.array(powers, np.uint16)).tolist() == roots


def test_special_values() -> None:
    """Test +0, -0, a negative number, infinities, NaN; then the mode without special values."""
    arguments = np.array([0, 0x8000, 0xBC00, 0x7C00, 0xFC00, 0x7E01], np.uint16)
    assert sqrt(arguments).tolist() == [0, 0x8000, 0x7E00, 0x7C00, 0x7E00, 0x7E00]
    assert reciprocal_sqrt(arguments).tolist() == [0x7C00, 0xFC00, 0x7E00, 0, 0x7E00, 0x7E00]
    assert sqrt(arguments, saturate=True)[:4].tolist() == [0, 0x8000, 0, 0x5C00]
    assert reciprocal_sqrt(arguments, saturate=True)[:4].tolist() == [0x7BFF] * 3 + [0x1C00]


def test_tables_agree() -> None:
    """The tables of model (float64) and hardware (mpmath) are computed independently."""
    heights, slopes = lines()
    assert [value for value, _ in line_table()] == heights.ravel().tolist()
    assert [slope for _, slope in line_table()] == slopes.ravel().tolist()


def test_rtl_equals_model_on_all_inputs() -> None:
    operators = {
        "root": FloatSqrt(),
        "root_saturated": FloatSqrt(saturate=True, stages=6),
        "reciprocal": FloatReciprocalSqrt(),
        "reciprocal_saturated": FloatReciprocalSqrt(saturate=True, stages=3, enable=True),
    }
    results = run_bank(operators, {name: {"a": FP16} for name in operators})
    for name, operator in operators.items():
        model = sqrt if isinstance(operator, FloatSqrt) else reciprocal_sqrt
        expected = model(FP16, saturate=operator.saturate)
        assert np.array_equal(results[name]["result"], expected), name
