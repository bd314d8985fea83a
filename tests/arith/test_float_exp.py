"""FP16 exponential: error over all arguments, special values, and the RTL on all inputs."""

import mpmath
import numpy as np
import pytest

from golden.arith.float_exp import exp, lines
from hdl.arith.float_exp import Domain, FloatExp, line_table
from hdl.arith.float_format import BINARY16
from testbenches.arith.bank import run_bank
from tests.arith.ulp import largest_error

FP16 = np.arange(1 << 16, dtype=np.uint16)
VALUES = BINARY16.decode(FP16)
FINITE = np.isfinite(VALUES)


def test_error_over_all_arguments() -> None:
    """The documented bound is the measured maximum, relative to 80-bit values."""
    results = exp(FP16)
    inside = FINITE & (VALUES < 11.0898) & (VALUES > -17.4)
    error = largest_error(results[inside], FP16[inside], mpmath.exp)
    assert 0.896 < error <= 0.897
    # Outside: infinity from the first value that rounds beyond 65504; zero below half a subnormal.
    assert set(results[FINITE & (VALUES >= 11.0898)]) == {0x7C00}
    assert set(results[FINITE & (VALUES <= -17.4)]) == {0}


def test_monotonic_and_exact_at_zero() -> None:
    order = np.argsort(VALUES[FINITE], kind="stable")
    codes = exp(FP16)[FINITE][order].astype(int)
    assert (np.diff(codes) >= 0).all()
    assert exp(FP16[[0x0000, 0x8000]]).tolist() == [BINARY16.one] * 2


def test_special_values() -> None:
    """Test infinity, NaN, and the mode without special values."""
    arguments = np.array([0x7C00, 0xFC00, 0x7E00, 0xFDFF], np.uint16)
    assert exp(arguments).tolist() == [0x7C00, 0, 0x7E00, 0x7E00]
    assert exp(arguments, saturate=True).tolist() == [0x7BFF, 0, 0x7BFF, 0]
    same = exp(FP16) < 0x7C00
    assert np.array_equal(exp(FP16, saturate=True)[same], exp(FP16)[same])


def test_nonpositive_domain_ignores_the_sign() -> None:
    positive = FP16[:0x8000]
    expected = exp(positive | 0x8000)
    assert np.array_equal(exp(positive, domain=Domain.NONPOSITIVE), expected)
    assert np.array_equal(exp(positive | 0x8000, domain=Domain.NONPOSITIVE), expected)


def test_tables_agree() -> None:
    """The tables of model (float64) and hardware (mpmath) are computed independently."""
    values, slopes = lines()
    assert [value for value, _ in line_table()] == values.tolist()
    assert [slope for _, slope in line_table()] == slopes.tolist()


def test_rtl_equals_model_on_all_inputs() -> None:
    """Test all modes, with and without stages."""
    modes = [
        {},
        {"stages": 5},
        {"domain": Domain.NONPOSITIVE, "stages": 2},
        {"saturate": True, "stages": 7, "enable": True},
        {"domain": Domain.NONPOSITIVE, "saturate": True},
    ]
    operators = {f"exp{index}": FloatExp(**mode) for index, mode in enumerate(modes)}
    results = run_bank(operators, {name: {"a": FP16} for name in operators})
    for name, operator in operators.items():
        expected = exp(FP16, domain=operator.domain, saturate=operator.saturate)
        assert np.array_equal(results[name]["result"], expected), name


def test_domain_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"domain must be one of .* not 'all'"):
        FloatExp(domain="all")  # pyright: ignore[reportArgumentType]
