"""Reciprocal: every mantissa against float64, and the RTL against the model."""

import numpy as np
import pytest

from golden.arith.reciprocal import normalise, reciprocal
from hdl.arith.reciprocal import Reciprocal
from testbenches.arith.bank import run_bank

RNG = np.random.default_rng(5)
OPERANDS = np.concatenate(
    [np.arange(1, 1 << 17), RNG.integers(1, 1 << 27, 100_000), [(1 << 27) - 1]]
)


def test_error_bounds() -> None:
    """Test all operands of 17 bits, and random wider ones."""
    mantissa, exponent = reciprocal(OPERANDS)
    error = mantissa * 2.0 ** (-15.0 - exponent) * OPERANDS - 1
    assert error.min() > -2.0e-4
    assert error.max() < 0


def test_product_with_the_normalised_operand_rounds_below_one() -> None:
    """The product is at least one unit below 1, for all normalised operands."""
    operands = np.arange(1 << 15, 1 << 16)
    mantissa, _exponent = reciprocal(operands)
    assert np.all(mantissa <= 2.0**30 / operands - 1)
    assert mantissa.min() >= 1 << 13


def test_normalise_keeps_the_upper_bits() -> None:
    operands = np.array([1, 2, 3, 32768, 65537, (1 << 40) - 1])
    divisor, exponent = normalise(operands, 15)
    assert list(exponent) == [0, 1, 1, 15, 16, 39]
    assert list(divisor) == [32768, 32768, 49152, 32768, 32768, 65535]


def test_rtl_equals_model() -> None:
    units = {f"stages_{stages}": Reciprocal(width=27, stages=stages) for stages in range(5)}
    results = run_bank(units, {name: {"a": OPERANDS} for name in units})
    mantissa, exponent = reciprocal(OPERANDS)
    for name in units:
        assert np.array_equal(results[name]["mantissa"], mantissa), name
        assert np.array_equal(results[name]["exponent"], exponent), name


def test_width_is_checked() -> None:
    with pytest.raises(ValueError, match="width must be an integer from 16 to 64, not 15"):
        Reciprocal(width=15)
