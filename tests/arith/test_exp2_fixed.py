"""2**x in fixed point: error bound, monotonicity, and the RTL on all arguments."""

from math import log

import numpy as np
import pytest

from golden.arith.exp2_fixed import exp2
from hdl.arith.exp2_fixed import Exp2Fixed
from hdl.arith.fixed_point import FixedPoint
from testbenches.arith.bank import run_bank

ARGUMENTS = np.arange(-(1 << 15), 1)
SMALL = FixedPoint(integer_bits=4, fraction_bits=4)
SMALL_RESULT = FixedPoint(integer_bits=2, fraction_bits=5, signed=False)
LONG_RESULT = FixedPoint(integer_bits=1, fraction_bits=20, signed=False)


@pytest.mark.parametrize("segments", [2, 4, 8, 16, 32, 64])
def test_error_is_within_the_bound(segments: int) -> None:
    """Test the documented bound over all arguments of the default format."""
    result = exp2(ARGUMENTS, segments=segments) / 2.0**15
    exact = np.exp2(ARGUMENTS / 1024)
    line = (log(2) / segments) ** 2 / 8
    unit = 2.0**-15
    assert (result <= exact * (1 + 1.1 * line) + 2 * unit).all()
    assert (result >= exact * (1 - 0.1 * line) - 2 * unit).all()
    # The bound is tight: segments reach 90 % of it where it exceeds the rounding.
    if segments <= 16:
        assert ((result - exact) / exact)[-1024:].max() > 0.9 * line


@pytest.mark.parametrize("segments", [2, 4, 16, 64])
def test_monotonic_and_exact_at_zero(segments: int) -> None:
    result = exp2(ARGUMENTS, segments=segments, result_format=LONG_RESULT)
    assert (np.diff(result) >= 0).all()
    assert result[-1] == 1 << 20
    assert result.max() == 1 << 20


def test_rtl_equals_model_on_all_arguments() -> None:
    operators = {
        "softermax": Exp2Fixed(),
        "fine": Exp2Fixed(segments=64, stages=2),
        "long": Exp2Fixed(result_format=LONG_RESULT, segments=16, stages=1, enable=True),
        "small": Exp2Fixed(argument=SMALL, result_format=SMALL_RESULT, segments=16),
    }
    small = np.arange(-(1 << 7), 1)
    arguments = {name: small if name == "small" else ARGUMENTS for name in operators}
    results = run_bank(operators, {name: {"a": values} for name, values in arguments.items()})
    for name, operator in operators.items():
        expected = exp2(
            arguments[name],
            argument=operator.argument,
            result_format=operator.result_format,
            segments=operator.segments,
        )
        assert np.array_equal(results[name]["result"], expected), name


def test_illegal_parameters() -> None:
    with pytest.raises(ValueError, match="segments must be a power of two between 2 and 64, not 3"):
        Exp2Fixed(segments=3)
    with pytest.raises(ValueError, match=r"result_format must be unsigned, not 'Q4.4'"):
        Exp2Fixed(result_format=SMALL)
