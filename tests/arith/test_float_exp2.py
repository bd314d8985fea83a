"""FP16 base-2 exponential: error over all arguments, exact integers, the RTL on all inputs."""

import numpy as np

from golden.arith.float_exp2 import exp2
from hdl.arith.float_exp2 import FloatExp2
from hdl.arith.float_format import BINARY16
from testbenches.arith.bank import run_bank

FP16 = np.arange(1 << 16, dtype=np.uint16)
VALUES = BINARY16.decode(FP16)
FINITE = np.isfinite(VALUES)


def test_error_over_all_arguments() -> None:
    """The documented bound is the measured maximum, relative to float64."""
    whole, mantissa = (part[FINITE] for part in exp2(FP16))
    assert mantissa.min() == 0 and mantissa.max() == 1023
    # Relative to the power of two, an ulp is 2**-10.
    exact = np.exp2(VALUES[FINITE] - whole)
    error = np.abs(1024 + mantissa - exact * 1024) / np.where(exact < 1, 0.5, 1)
    assert 0.87 < error.max() <= 0.88, error.max()


def test_monotonic_and_exact_for_integers() -> None:
    order = np.argsort(VALUES[FINITE], kind="stable")
    whole, mantissa = (part[FINITE][order] for part in exp2(FP16))
    assert (np.diff(whole * 1024 + mantissa) >= 0).all()
    integers = FINITE & (np.floor(VALUES) == VALUES)
    whole, mantissa = (part[integers] for part in exp2(FP16))
    assert np.array_equal(whole, VALUES[integers]) and not mantissa.any()


def test_rtl_equals_model_on_all_inputs() -> None:
    """Test with and without pipeline stages."""
    numbers = FP16[FINITE]
    operators = {f"exp{n}": FloatExp2(stages=n, enable=n == 2) for n in range(4)}
    results = run_bank(operators, {name: {"a": numbers} for name in operators})
    whole, mantissa = exp2(numbers)
    for name in operators:
        got = results[name]["whole"].astype(np.int64)
        assert np.array_equal((got + (1 << 16)) % (1 << 17) - (1 << 16), whole), name
        assert np.array_equal(results[name]["mantissa"], mantissa), name
