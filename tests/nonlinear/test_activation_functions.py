"""SiLU and GeLU: every input of the model against float64; parameters."""

from typing import Any

import numpy as np
import pytest

from golden.nonlinear.activation_functions import activation, exact_activation
from hdl.nonlinear.activation_functions import ActivationFunctionsParameters, Function

INPUTS = np.arange(-(1 << 15), 1 << 15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be a power of two between 1 and 64, not 0"),
        ({"pieces": 100}, "pieces must be a power of two between 16 and 1024, not 100"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActivationFunctionsParameters(**change)


@pytest.mark.parametrize(
    ("pieces", "function", "bound"),
    [
        (256, Function.SILU, 0.73),
        (256, Function.GELU, 0.85),
        (64, Function.SILU, 4.4),
        (64, Function.GELU, 6.7),
    ],
)
def test_error_of_every_input(pieces: int, function: Function, bound: float) -> None:
    """Test all 65,536 inputs; errors are in output steps of 2**-10."""
    p = ActivationFunctionsParameters(pieces=pieces)
    got = activation(INPUTS, function.value, p)
    error = np.abs(got - 1024 * exact_activation(INPUTS / 1024, function))
    assert 0.5 < error.max() < bound


def test_large_values_give_x_or_zero() -> None:
    p = ActivationFunctionsParameters()
    for function in Function:
        got = activation(INPUTS, function.value, p)
        far = np.abs(INPUTS) >= 16 * 1024
        assert np.array_equal(got[far], np.maximum(INPUTS, 0)[far])
        assert got[INPUTS == 0] == 0
