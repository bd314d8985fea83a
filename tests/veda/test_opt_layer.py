"""Test the model of an OPT layer against the library's layer in float64."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import OPTConfig

from golden.arith.float_values import codes, values
from golden.llm.layers import LayerWeights
from golden.veda.decoder_layer import DecoderLayer, folded
from hdl.catalog import entry_named
from hdl.veda.parameters import VedaParameters
from tests.llm.opt_layer import drawn_layer, numbers

P: VedaParameters = replace(
    entry_named("veda").parameters("tiny_opt"), hidden_size=24, slots=32, vocabulary_size=0
)
TOKENS = 12
ANGLES = np.zeros(0, np.uint16)
"""Rotary angles, of which an OPT layer has none."""

Reals = NDArray[np.float64]


@pytest.fixture(scope="module")
def library() -> Any:
    """Return a layer of OPT in float64 with random weights, biases and norms."""
    config = OPTConfig(
        hidden_size=P.hidden_size,
        ffn_dim=P.intermediate_size,
        num_attention_heads=P.heads,
        dropout=0.0,
    )
    return drawn_layer(config, 0.2)


def states() -> Reals:
    """Return hidden states with a mean, which a norm without subtraction would not remove."""
    rows = np.random.default_rng(2).normal(0.5, 2, (TOKENS, P.hidden_size))
    return values(codes(rows))


def opt_weights(module: Any) -> LayerWeights:
    """Return OPT's matrices with norms folded in, and with the biases as first rows."""

    def matrix(linear: Any, norm: Any = None) -> Reals:
        weight, bias = numbers(linear.weight).T, numbers(linear.bias)
        if norm is not None:
            bias = bias + numbers(norm.bias) @ weight
            weight = numbers(norm.weight)[:, np.newaxis] * weight
        return np.concatenate([bias[np.newaxis], weight])

    attention, before = module.self_attn, module.self_attn_layer_norm

    def heads(linear: Any) -> Reals:
        return matrix(linear, before).reshape(-1, P.heads, P.head_size)

    up = matrix(module.fc1, module.final_layer_norm)
    return LayerWeights(
        query=heads(attention.q_proj) / math.sqrt(P.head_size),
        key=heads(attention.k_proj),
        value=heads(attention.v_proj),
        output=matrix(attention.out_proj),
        gate=up[:, :0],
        up=up,
        down=matrix(module.fc2),
    )


def opts_own(module: Any, inputs: Reals) -> Reals:
    """Return the hidden states after the library's layer, with a causal mask."""
    count = len(inputs)
    mask = torch.full((1, 1, count, count), -math.inf, dtype=torch.float64).triu(1)
    with torch.inference_mode():
        made = module(torch.tensor(inputs)[None], attention_mask=mask)
    return numbers(made[0] if isinstance(made, tuple) else made).reshape(count, -1)


def error(weights: LayerWeights, inputs: Reals, truth: Reals) -> float:
    """Return the model's error, relative to the layer's update of the states."""
    layer = DecoderLayer(P, folded(weights))
    made = [values(layer.step(codes(state), ANGLES, ANGLES).state) for state in inputs]
    return float(np.linalg.norm(np.array(made) - truth) / np.linalg.norm(truth - inputs))


def without_biases(matrix: Reals) -> Reals:
    """Return a matrix whose biases are zero."""
    return np.concatenate([np.zeros_like(matrix[:1]), matrix[1:]])


def test_model_is_near_the_library(library: Any) -> None:
    """Every bias counts, except that of the keys, which shifts all scores of a row equally."""
    inputs = states()
    truth, weights = opts_own(library, inputs), opt_weights(library)
    found = error(weights, inputs, truth)
    assert found < 2e-3
    for name in ("query", "value", "output", "up", "down"):
        lost = replace(weights, **{name: without_biases(getattr(weights, name))})
        assert error(lost, inputs, truth) > 5 * found, name
