"""Layer norm: the model against float64 and fractions; its parameters."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden.llm import open_trace
from golden.nonlinear.layer_norm import exact_layer_norm, layer_norm
from golden.nonlinear.row_norm import error_bound, quantise_states, quantise_weights
from hdl.catalog import entry_named
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.row_norm import OUTPUT

PRESETS = ["tiny", "smollm2", "paper"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"width": 32}, "width must be at least two slices, not 32"),
        ({"width": 100}, "width must be a multiple of lanes, not 100"),
        ({"weight_fraction": 16}, "weight_fraction must be an integer from 10 to 15, not 16"),
        ({"rows": 17}, "rows must be an integer from 1 to 16, not 17"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LayerNormParameters(**change)


def check(states: Any, epsilon: Any, weights: Any, biases: Any, p: Any) -> None:
    """Require the error bound, and saturation beyond the range."""
    got = layer_norm(states, epsilon, weights, biases, p) / 2.0**OUTPUT.fraction_bits
    exact = exact_layer_norm(states, epsilon, weights, biases, p)
    clamped = np.clip(exact, float(OUTPUT.minimum), float(OUTPUT.maximum))
    assert np.all(np.abs(got - clamped) <= error_bound(exact, weights, p, biases))


@pytest.mark.parametrize("preset", PRESETS)
def test_bound_on_random_rows(preset: str) -> None:
    """Test rows of all magnitudes, with small and large means and epsilons."""
    p = entry_named("layer_norm").parameters(preset)
    rng = np.random.default_rng(7)
    states = rng.integers(-(1 << 15), 1 << 15, (160, p.width)) >> rng.integers(0, 16, (160, 1))
    states[1::2] = np.clip(
        states[1::2] + rng.integers(-(1 << 14), 1 << 14, (80, 1)), -(1 << 15), (1 << 15) - 1
    )
    epsilon = 1 + (rng.integers(0, (1 << 32) - 1, 160) >> rng.integers(0, 32, 160))
    weights, biases = rng.integers(-(1 << 15), 1 << 15, (2, p.width))
    check(states, epsilon, weights, biases, p)


def test_a_row_of_equal_elements_gives_the_biases() -> None:
    p = entry_named("layer_norm").parameters("smollm2")
    states = np.full((2, p.width), 1234, np.int64)
    biases = np.arange(p.width) - 300
    for weight in (-32768, 32767):
        weights = np.full(p.width, weight)
        got = layer_norm(states, np.array([0, 10**6]), weights, biases, p)
        assert np.array_equal(got, np.broadcast_to(biases, got.shape))


def test_the_deviation_of_a_row_is_exact() -> None:
    """Test elements one step apart around a large mean, where floating point loses precision."""
    p = entry_named("layer_norm").parameters("smollm2")
    states = 32000 + (np.arange(p.width)[np.newaxis] % 3)
    values = [Fraction(int(x)) for x in states[0]]
    mean = sum(values) / p.width
    variance = sum((x - mean) ** 2 for x in values) / p.width
    weights = np.full(p.width, 1 << p.weight_fraction)
    got = layer_norm(states, np.array([0]), weights, np.zeros(p.width, np.int64), p)[0]
    for x, y in zip(values, got, strict=True):
        assert abs(float(x - mean) / float(variance) ** 0.5 - y / 1024) < 0.0011


def test_real_hidden_states_are_near_float64() -> None:
    """Compare every hidden state of three layers with the norm of the unquantised states."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = entry_named("layer_norm").parameters("smollm2")
    for layer in trace.layers:
        floats = trace.hidden(layer)[0].astype(np.float64)
        weight = trace.norm(layer, "input")
        states, epsilon = quantise_states(floats, 1e-5)
        weights, biases = quantise_weights(weight, p), np.arange(p.width) - 288
        check(states, epsilon, weights, biases, p)
        centred = floats - floats.mean(axis=1, keepdims=True)
        variance = np.mean(centred**2, axis=1, keepdims=True)
        exact = centred / np.sqrt(variance + 1e-5) * weight + biases / 1024
        error = np.abs(layer_norm(states, epsilon, weights, biases, p) / 1024 - exact)
        assert error.max() < 0.0011
        assert error.mean() < 0.0003
