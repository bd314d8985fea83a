"""RMSNorm: the model against float64 on real and extreme rows; its parameters."""

from typing import Any

import numpy as np
import pytest

from golden.llm import open_trace
from golden.nonlinear.rms_norm import exact_rms_norm, rms_norm
from golden.nonlinear.row_norm import error_bound, quantise_states, quantise_weights
from hdl.catalog import entry_named
from hdl.nonlinear.rms_norm import RmsNormParameters
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
        RmsNormParameters(**change)


def check(states: np.ndarray, epsilon: np.ndarray, weights: np.ndarray, p: Any) -> None:
    """Require the error bound, and saturation beyond the range."""
    got = rms_norm(states, epsilon, weights, p) / 2.0**OUTPUT.fraction_bits
    exact = exact_rms_norm(states, epsilon, weights, p)
    clamped = np.clip(exact, float(OUTPUT.minimum), float(OUTPUT.maximum))
    assert np.all(np.abs(got - clamped) <= error_bound(exact, weights, p))


@pytest.mark.parametrize("preset", PRESETS)
def test_bound_on_random_rows(preset: str) -> None:
    """Test rows of all magnitudes, with small and large epsilons."""
    p = entry_named("rms_norm").parameters(preset)
    rng = np.random.default_rng(7)
    states = rng.integers(-(1 << 15), 1 << 15, (160, p.width)) >> rng.integers(0, 16, (160, 1))
    states[::4] = np.rint(states[::4] * rng.random((40, p.width)) ** 8).astype(np.int64)
    epsilon = 1 + (rng.integers(0, (1 << 32) - 1, 160) >> rng.integers(0, 32, 160))
    check(states, epsilon, rng.integers(-(1 << 15), 1 << 15, p.width), p)


@pytest.mark.parametrize("preset", PRESETS)
def test_bound_at_every_position_of_the_highest_one(preset: str) -> None:
    p = entry_named("rms_norm").parameters(preset)
    states = np.zeros((62, p.width), np.int64)
    for row in range(31):
        states[2 * row, row % p.width] = min(1 << row // 2, 32767)
        states[2 * row + 1] = -min(1 << row // 2, 32768)
    check(states, np.ones(62, np.int64), np.full(p.width, 1 << p.weight_fraction), p)


def test_zero_stays_zero() -> None:
    p = entry_named("rms_norm").parameters("smollm2")
    states = np.zeros((2, p.width), np.int64)
    for weight in (-32768, 32767):
        got = rms_norm(states, np.array([0, 10**6]), np.full(p.width, weight), p)
        assert not got.any()


def test_real_hidden_states_are_near_float64() -> None:
    """Compare every hidden state of three layers with the norm of the unquantised states."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = entry_named("rms_norm").parameters("smollm2")
    for layer in trace.layers:
        floats = trace.hidden(layer)[0].astype(np.float64)
        weight = trace.norm(layer, "input")
        states, epsilon = quantise_states(floats, 1e-5)
        weights = quantise_weights(weight, p)
        check(states, epsilon, weights, p)
        mean = np.mean(floats**2, axis=1, keepdims=True)
        exact = floats / np.sqrt(mean + 1e-5) * weight
        error = np.abs(rms_norm(states, epsilon, weights, p) / 1024 - exact)
        assert error.max() < 0.0011
        assert error.mean() < 0.0003
