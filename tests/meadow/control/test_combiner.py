"""Compare the combiner's model with exact fractions and float64; check its parameters."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden.meadow.control.combiner import activated, added, narrowed
from golden.meadow.layer_quantisation import exact_activation
from hdl.meadow.control.combiner import CombinerParameters
from hdl.nonlinear.activation_functions import Activation

RNG = np.random.default_rng(3)


def test_products_are_rounded_half_to_even_and_clamped() -> None:
    """The random products include ties and both limits."""
    values = RNG.integers(-(1 << 15), 1 << 15, 4000) >> RNG.integers(0, 15, 4000)
    factors = RNG.integers(0, 1 << 16, 4000) >> RNG.integers(0, 15, 4000)
    factors[::3] = 1 << 15
    got = narrowed(values, factors)
    ties = 0
    for value, factor, one in zip(values.tolist(), factors.tolist(), got.tolist(), strict=True):
        exact = Fraction(value * factor, 1 << 16)
        ties += exact.denominator == 2
        assert one == max(-128, min(127, round(exact)))
    assert ties > 100 and {-128, 127} <= set(got.tolist())


def test_sums_are_clamped_to_24_bits() -> None:
    states, results = np.array([(1 << 23) - 5, -(1 << 23), 7]), np.array([1, -1, -3])
    assert added(states, results, 2).tolist() == [(1 << 23) - 1, -(1 << 23), -5]
    assert added(states, results, 8).tolist() == [(1 << 23) - 1, -(1 << 23), 7 - 768]


@pytest.mark.parametrize("function", list(Activation))
def test_activations_are_within_one_step_of_float64(function: Activation) -> None:
    """All inputs in Q6.10."""
    values = np.arange(-(1 << 15), 1 << 15)
    exact = exact_activation(values / 1024, function) * 1024
    assert np.abs(activated(values, function) - exact).max() <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size must be an integer from 1 to 256, not 0"),
        ({"size": 257}, "size must be an integer from 1 to 256, not 257"),
        ({"size": 4, "units": 8}, "units must be an integer from 1 to 4, not 8"),
        ({"size": 12, "units": 8}, "units must divide size = 12, not 8"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        CombinerParameters(**change)
