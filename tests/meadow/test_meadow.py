"""The accelerator: its parameters, and its model compared with real layers in float64."""

import re
from typing import Any

import numpy as np
import pytest

from golden.llm import Trace, open_trace
from golden.llm.layers import LayerWeights, exact_layer, real_weights, rotary_angles
from golden.meadow.layer_quantisation import (
    quantised_layer,
    real_layer,
    real_steps,
    smoothed,
)
from golden.meadow.meadow import activated, added, narrowed, norm, run_layer
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.nonlinear.activation_functions import Activation
from testbenches.meadow.random_layers import STATE_STEP

P = MeadowParameters()
LAYERS = (0, 14, 29)
TOKENS = 64
NONE = np.zeros((P.kv_heads, 0, P.head_size))
NO_CACHE = (NONE.astype(np.int64), NONE.astype(np.int64))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(text="prose", tokens=640, layers=LAYERS)


def part_of(trace: Trace, layer: int) -> tuple[LayerWeights, Any, Any]:
    """Return a layer's matrices, and the hidden states before and after it."""
    before, after = (states[:TOKENS].astype(np.float64) for states in trace.hidden(layer))
    return real_weights(P, trace, layer), before, after


def size_of(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_size": 500},
            "hidden_size must be a multiple of slices * head_size = 192, not 500",
        ),
        ({"heads": 12}, "hidden_size must be heads * head_size, not 576"),
        ({"kv_heads": 2}, "kv_heads must divide heads = 9, not 2"),
        ({"words": 32}, "words must hold a token's state, its norm and its gates, not 32"),
        (
            {
                "hidden_size": 144,
                "intermediate_size": 384,
                "slots": 4096,
                "tokens": 4096,
                "element": ElementParameters(multipliers=16),
            },
            "a head's probabilities must be at most 2^20 words, not 2097152",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        MeadowParameters(**change)


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_in_float64_equals_that_of_the_model(trace: Trace, layer: int) -> None:
    """Compare with SmolLM2's own hidden states, and one token with `exact_layer`."""
    weights, before, after = part_of(trace, layer)
    positions = np.arange(TOKENS)
    found = real_steps(real_layer(weights), before, positions, (NONE, NONE), P)
    assert size_of(found["states"] - after) < 1e-5 * size_of(after)
    angles = rotary_angles(positions, P.head_size, P.rope_base)
    past = found["keys"][:, :20], found["values"][:, :20]
    one = exact_layer(weights, before[20], (np.cos(angles[20]), np.sin(angles[20])), past)
    assert np.allclose(one, found["states"][20], rtol=1e-9, atol=1e-9)


def test_smoothing_does_not_change_float64_states(trace: Trace) -> None:
    weights, before, _after = part_of(trace, 14)
    arguments = before, np.arange(TOKENS), (NONE, NONE), P
    layer = real_layer(weights)
    found = real_steps(layer, *arguments)
    again = real_steps(smoothed(layer, found, P), *arguments)
    assert size_of(again["states"] - found["states"]) < 1e-12 * size_of(found["states"])


@pytest.mark.parametrize(
    ("layer", "most", "unsmoothed"), [(0, 0.06, 0.08), (14, 0.13, 0.2), (29, 0.13, 0.14)]
)
def test_integers_are_near_float64(
    trace: Trace, layer: int, most: float, unsmoothed: float
) -> None:
    """Limit the error relative to the layer's contribution; without SmoothQuant it is larger."""
    weights, before, _after = part_of(trace, layer)
    states = np.rint(before / STATE_STEP).astype(np.int64)
    errors = []
    for smooth in (True, False):
        integers, real = quantised_layer(weights, before, P, STATE_STEP, smooth=smooth)
        exact = real_steps(real, before, np.arange(TOKENS), (NONE, NONE), P)["states"]
        got = run_layer(integers, states, NO_CACHE, P).states * STATE_STEP
        errors.append(size_of(got - exact) / size_of(exact - before))
    assert errors[0] < most
    assert errors[1] > unsmoothed


def test_decode_step_equals_last_token_of_prefill(trace: Trace) -> None:
    weights, before, _after = part_of(trace, 14)
    integers, _real = quantised_layer(weights, before, P, STATE_STEP)
    states = np.rint(before / STATE_STEP).astype(np.int64)
    whole = run_layer(integers, states, NO_CACHE, P)
    first = run_layer(integers, states[:-1], NO_CACHE, P)
    last = run_layer(integers, states[-1:], (first.keys, first.values), P)
    assert np.array_equal(last.states, whole.states[-1:])
    assert np.array_equal(last.keys, whole.keys)
    assert np.array_equal(last.values, whole.values)


def test_norm_does_not_depend_on_the_scale_of_a_row() -> None:
    """Compare with float64, for rows from a few steps to all 24 bits."""
    rng = np.random.default_rng(1)
    rows = np.rint(rng.normal(0, 1, (24, P.hidden_size)) * 2.0 ** np.arange(-1, 23)[:, None] / 4)
    rows = np.clip(rows, -(1 << 23), (1 << 23) - 1).astype(np.int64)
    weights = np.full(P.hidden_size, 8 << P.weight_fraction)
    got = norm(rows, weights, 9, P)
    exact = rows / np.sqrt((np.sum(rows * rows, axis=1) + 9) / P.hidden_size)[:, None] * 8 * 4
    assert np.abs(got - np.clip(exact, -128, 127)).max() < 0.6
    assert np.abs(got).max() > 100


def test_results_are_clamped_and_ties_rounded_to_even() -> None:
    top = (1 << 23) - 1
    assert added(np.array([top, -top]), np.array([1, -3]), 8).tolist() == [top, -top - 1]
    gate, up = np.array([20 << 10, 20 << 10, -(20 << 10)]), np.array([32767, -32768, 32767])
    assert narrowed(activated(gate, Activation.SILU), up).tolist() == [127, -128, 0]
    # SiLU of 16 is 16, so that the products are ties.
    sixteen = activated(np.array([16 << 10] * 4), Activation.SILU)
    assert narrowed(sixteen, np.array([2, 6, -2, -6])).tolist() == [0, 2, 0, -2]
    assert activated(np.array([-5, 0, 7]), Activation.RELU).tolist() == [0, 0, 7]
