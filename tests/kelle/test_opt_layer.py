"""OPT's layers: the float64 reference compared with the library, and integers with both."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import OPTConfig

from golden.kelle.decoder_layer import (
    DecoderLayer,
    ExactLayer,
    exact_heads,
    exact_layer,
    quantised_layer,
)
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import Activation
from tests.llm.opt_layer import drawn_layer, numbers

P = KelleParameters(
    words=1024,
    heads=4,
    kv_heads=4,
    intermediate_size=512,
    rotary=False,
    layer_norm=True,
    biases=True,
    activation=Activation.RELU,
    gated=False,
    slots=64,
    window=32,
    prefill_tokens=256,
    score_width=24,
)
TOKENS = 96
FIRST = 72
"""Tokens of the prefill, of which not all are kept."""


@pytest.fixture(scope="module")
def layer() -> Any:
    """Return a layer of OPT in float64 with random weights, biases and norms."""
    config = OPTConfig(
        hidden_size=P.hidden_size,
        ffn_dim=P.intermediate_size,
        num_attention_heads=P.heads,
        dropout=0.0,
    )
    return drawn_layer(config, 0.06)


@pytest.fixture(scope="module")
def states() -> NDArray[np.float64]:
    """Return hidden states with a mean, of which one channel is large."""
    rows = np.random.default_rng(2).normal(0.5, 2, (TOKENS, P.hidden_size))
    rows[:, 5] *= 6
    return rows


def folded(module: Any) -> ExactLayer:
    """Return OPT's layer with the norms' weights and biases folded into the matrices."""
    attention, root = module.self_attn, math.sqrt(P.head_size)
    matrices, biases = {}, {}
    for which, linear, norm in (
        (Operation.QUERY, attention.q_proj, module.self_attn_layer_norm),
        (Operation.KEY, attention.k_proj, module.self_attn_layer_norm),
        (Operation.VALUE, attention.v_proj, module.self_attn_layer_norm),
        (Operation.OUTPUT, attention.out_proj, None),
        (Operation.UP, module.fc1, module.final_layer_norm),
        (Operation.DOWN, module.fc2, None),
    ):
        matrix, bias = numbers(linear.weight).T, numbers(linear.bias)
        if norm is not None:
            bias = bias + numbers(norm.bias) @ matrix
            matrix = numbers(norm.weight)[:, np.newaxis] * matrix
        scale = root if which is Operation.QUERY else 1.0
        matrices[which], biases[which] = matrix / scale, bias / scale
    return ExactLayer(matrices, biases)


@pytest.fixture(scope="module")
def quantised(layer: Any, states: NDArray[np.float64]) -> DecoderLayer:
    return quantised_layer(folded(layer), states, P)


def opts_own(module: Any, states: NDArray[np.float64]) -> NDArray[np.float64]:
    mask = torch.full((1, 1, TOKENS, TOKENS), -math.inf, dtype=torch.float64).triu(1)
    with torch.inference_mode():
        made = module(torch.tensor(states)[None], attention_mask=mask)
    return numbers(made[0] if isinstance(made, tuple) else made).reshape(TOKENS, -1)


def test_the_layer_in_float64_is_opts(layer: Any, quantised: DecoderLayer) -> None:
    own, heads = opts_own(layer, quantised.states), exact_heads(quantised, P)
    for now in (0, 1, 40, TOKENS - 1):
        attended = [np.arange(now + 1)] * P.kv_heads
        found = exact_layer(quantised, P, heads, now, attended)
        assert np.abs(found - own[now]).max() < 1e-11 * np.abs(own[now]).max()


def decode_error(layer: DecoderLayer, truth: DecoderLayer, p: KelleParameters) -> float:
    """Return the error of decoded states, relative to the layer's update of the state."""
    model, heads = KelleModel(p, layer), exact_heads(truth, p)
    prefill(model, FIRST)
    unit, error, size = truth.steps[Operation.DOWN], 0.0, 0.0
    inputs = layer.quantised.copy()
    for now in range(FIRST, FIRST + 12):
        step = model.step(now, layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
        exact = exact_layer(truth, p, heads, now, step.attended)
        error += float(np.square(step.output * unit - exact).sum())
        size += float(np.square(exact - truth.states[now]).sum())
    return math.sqrt(error / size)


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.GELU, Activation.SILU])
def test_integers_are_near_opts_own(
    quantised: DecoderLayer, states: NDArray[np.float64], activation: Activation
) -> None:
    """Error of eight-bit weights, relative to the layer's update; an omitted bias is detected."""
    p = replace(P, activation=activation)
    layer = quantised_layer(quantised.exact, states, p)
    error = decode_error(layer, layer, p)
    print(activation.name, error)
    assert error < 0.03
    for which, projection in layer.projections.items():
        if which is Operation.KEY:
            # A key's bias adds the same value to all scores of a row; softmax is invariant.
            continue
        without = replace(projection, bias=0 * projection.bias)
        lost = replace(layer, projections=layer.projections | {which: without})
        assert decode_error(lost, layer, p) > 1.5 * error, which
