"""LAD's reciprocal: specified errors, all inputs against exact values, and the RTL."""

from math import log2

import numpy as np
import pytest

from golden.arith.takagi_reciprocal import approximate, reciprocal
from hdl.arith.float_format import BINARY16
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from testbenches.arith.bank import run_bank
from tests.arith.ulp import largest_error

FP16 = np.arange(1 << 16, dtype=np.uint16)
# 1/x is finite from 2**-16 on.
INVERTIBLE = FP16[0x0101:0x7C00]


@pytest.mark.parametrize(("bits", "specified"), [(14, -13.4), (12, -11.2)])
def test_relative_error_of_the_product(bits: int, specified: float) -> None:
    """Test the 64 entries, which are for the middle of each segment's numbers."""
    significand = np.arange(1024, 2048)
    product = approximate(significand, bits) / 2.0 ** (bits + 10)
    error = np.abs(product * significand / 1024 - 1).max()
    assert round(log2(error), 1) == specified


@pytest.mark.parametrize(("bits", "bound"), [(14, 0.596), (12, 0.916)])
def test_error_over_all_arguments(bits: int, bound: float) -> None:
    """The documented bounds are the measured maxima, relative to 80-bit values."""
    results = reciprocal(INVERTIBLE, entry_bits=bits)
    assert bound - 0.001 < largest_error(results, INVERTIBLE, lambda x: 1 / x) <= bound
    negative = reciprocal(INVERTIBLE | 0x8000, entry_bits=bits)
    assert np.array_equal(negative, results | 0x8000)


def test_special_values() -> None:
    """Test zeros, a subnormal with infinite reciprocal, infinities, NaN; then without specials."""
    arguments = np.array([0, 0x8000, 0x0001, 0x7C00, 0xFC00, 0xFE01], np.uint16)
    assert reciprocal(arguments).tolist() == [0x7C00, 0xFC00, 0x7C00, 0, 0x8000, 0x7E00]
    saturated = reciprocal(arguments, saturate=True)
    assert saturated[:4].tolist() == [0x7BFF, 0xFBFF, 0x7BFF, BINARY16.from_fraction(2**-16)]


def test_powers_of_two_are_exact() -> None:
    powers = np.array([exponent << 10 for exponent in range(1, 30)], np.uint16)
    for bits in range(12, 17):
        assert np.array_equal(reciprocal(powers, entry_bits=bits), powers[::-1])


def test_rtl_equals_model_on_all_inputs() -> None:
    operators = {
        "plain": TakagiReciprocal(),
        "short": TakagiReciprocal(entry_bits=12, saturate=True, stages=4),
        "long": TakagiReciprocal(entry_bits=16, stages=2, enable=True),
    }
    results = run_bank(operators, {name: {"a": FP16} for name in operators})
    for name, operator in operators.items():
        expected = reciprocal(FP16, entry_bits=operator.entry_bits, saturate=operator.saturate)
        assert np.array_equal(results[name]["result"], expected), name


def test_entry_bits_out_of_range() -> None:
    with pytest.raises(ValueError, match="entry_bits must be an integer from 12 to 16, not 8"):
        TakagiReciprocal(entry_bits=8)
