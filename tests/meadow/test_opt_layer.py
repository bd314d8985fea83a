"""Layers with layer norm, biases and no gate: float64 compared with OPT, integers with float64."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import OPTConfig

from golden.llm.layers import LayerWeights
from golden.meadow.layer_quantisation import (
    RealLayer,
    quantised_layer,
    real_steps,
    smoothed,
)
from golden.meadow.meadow import norm, run_layer
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.nonlinear.activation_functions import Activation
from testbenches.meadow.random_layers import STATE_STEP, of_kind, random_weights
from tests.llm.opt_layer import drawn_layer, numbers
from tests.meadow.float_layer import float_layer

P: MeadowParameters = entry_named("meadow").parameters("paper")
TOKENS = 24
NONE = np.zeros((P.kv_heads, 0, P.head_size))
NO_CACHE = (NONE.astype(np.int64), NONE.astype(np.int64))
POSITIONS = np.arange(TOKENS)


def size_of(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.fixture(scope="module")
def layer() -> Any:
    """Return OPT-125M's layer in float64 with random weights, biases and norms."""
    config = OPTConfig(dropout=0.0)
    assert (config.hidden_size, config.ffn_dim) == (P.hidden_size, P.intermediate_size)
    return drawn_layer(config)


def real(module: Any) -> RealLayer:
    """Return OPT's layer in the accelerator's shapes."""
    own = module.self_attn
    linears = {"query": own.q_proj, "key": own.k_proj, "value": own.v_proj, "output": own.out_proj}
    linears |= {"up": module.fc1, "down": module.fc2}
    return float_layer(linears, (module.self_attn_layer_norm, module.final_layer_norm), P)


@pytest.fixture(scope="module")
def states() -> NDArray[np.float64]:
    """Return hidden states with a nonzero mean and one large channel."""
    rng = np.random.default_rng(2)
    rows = rng.normal(0.5, 2, (TOKENS, P.hidden_size))
    rows[:, 5] *= 20
    return np.rint(rows / STATE_STEP) * STATE_STEP


def opts_own(module: Any, states: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the hidden states after OPT's own layer."""
    mask = torch.full((1, 1, TOKENS, TOKENS), -math.inf, dtype=torch.float64).triu(1)
    with torch.inference_mode():
        made = module(torch.tensor(states)[None], attention_mask=mask)
    return numbers(made[0] if isinstance(made, tuple) else made).reshape(TOKENS, -1)


def test_layer_in_float64_equals_that_of_opt(layer: Any, states: NDArray[np.float64]) -> None:
    found = real_steps(real(layer), states, POSITIONS, (NONE, NONE), P)
    own = opts_own(layer, states)
    assert size_of(found["states"] - own) < 1e-12 * size_of(own - states)


@pytest.mark.parametrize(
    ("activation", "gated"), [(Activation.RELU, False), (Activation.GELU, True)]
)
def test_smoothing_does_not_change_float64_states(
    layer: Any, states: NDArray[np.float64], activation: Activation, gated: bool
) -> None:
    p = replace(P, activation=activation, gated=gated)
    plain = real(layer)
    if gated:
        plain = replace(plain, matrices=plain.matrices | {"gate": plain.matrices["up"][:, ::-1]})
    found = real_steps(plain, states, POSITIONS, (NONE, NONE), p)
    again = real_steps(smoothed(plain, found, p), states, POSITIONS, (NONE, NONE), p)
    assert size_of(again["states"] - found["states"]) < 1e-12 * size_of(found["states"])


def test_gelu_layer_in_float64_equals_that_of_torch(
    layer: Any, states: NDArray[np.float64]
) -> None:
    """DeiT's feed-forward: second norm, first matrix, GeLU, second matrix."""
    p = replace(P, activation=Activation.GELU)
    found = real_steps(real(layer), states, POSITIONS, (NONE, NONE), p)
    middle = torch.tensor(states + found["output"])
    own = layer.final_layer_norm
    rows = functional.layer_norm(middle, (P.hidden_size,), own.weight, own.bias, 1e-5)
    assert np.allclose(found["middle"], numbers(rows), rtol=1e-12, atol=1e-12)
    after = middle + layer.fc2(functional.gelu(layer.fc1(rows)))
    assert np.allclose(found["states"], numbers(after), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("activation", "most"),
    [(Activation.RELU, 0.05), (Activation.GELU, 0.05), (Activation.SILU, 0.05)],
)
def test_integers_are_near_float64(
    layer: Any, states: NDArray[np.float64], activation: Activation, most: float
) -> None:
    """Limit the error relative to the layer's contribution; without a bias it is larger."""
    p = replace(P, activation=activation)
    integers, plain = quantised_layer(real(layer), states, p, STATE_STEP)
    exact = real_steps(plain, states, POSITIONS, (NONE, NONE), p)["states"]
    raw = np.rint(states / STATE_STEP).astype(np.int64)
    got = run_layer(integers, raw, NO_CACHE, p).states * STATE_STEP
    assert size_of(got - exact) < most * size_of(exact - states)
    for name in integers.biases:
        if name == "key":
            # It adds the same value to all scores of a row, which cancels in the softmax.
            continue
        without = replace(integers, biases=integers.biases | {name: 0 * integers.biases[name]})
        wrong = run_layer(without, raw, NO_CACHE, p).states * STATE_STEP
        assert size_of(wrong - exact) > 1.5 * size_of(got - exact), name


def test_layer_norm_does_not_depend_on_scale_and_mean_of_a_row() -> None:
    """Compare with torch, for rows from a few steps to all 24 bits."""
    rng = np.random.default_rng(1)
    rows = rng.normal(0.7, 1, (22, P.hidden_size)) * 2.0 ** np.arange(1, 23)[:, None] / 8
    rows = np.clip(np.rint(rows), -(1 << 23), (1 << 23) - 1).astype(np.int64)
    weights = np.full(P.hidden_size, 8 << P.weight_fraction)
    bias = rng.integers(-4096, 4096, P.hidden_size)
    got = norm(rows, weights, 9, P, bias)
    exact = functional.layer_norm(
        torch.tensor(rows, dtype=torch.float64), (P.hidden_size,), eps=9 / P.hidden_size
    )
    wanted = np.clip(numbers(exact) * 8 * 4 + bias / 256, -128, 127)
    assert np.abs(got - wanted).max() < 0.7
    assert np.abs(got).max() > 100


def test_random_layers_have_the_parts_of_the_accelerator() -> None:
    rng = np.random.default_rng(1)
    for preset in ("tiny", "tiny_opt"):
        p: MeadowParameters = entry_named("meadow").parameters(preset)
        layer = of_kind(random_weights(p, rng), p, rng)
        names = set(LayerWeights.__dataclass_fields__) - (set() if p.gated else {"gate"})
        assert set(layer.matrices) == names
        assert set(layer.biases) == (names if p.biases else set())
