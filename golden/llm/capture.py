"""One pass of SmolLM2 in numpy, which records the activations of the requested decoder layers.

This pass defines the captured tensors. Each recorded tensor is computed in float64 from tensors
that are already rounded, and is itself rounded once to float32. A float64 sum differs from the
exact one by a few parts in 2**53, so the order in which a BLAS library adds its terms is visible
only where the exact value lies within that distance of the middle between two float32 values.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from golden.llm.model import SMOLLM2

Tensors = dict[str, np.ndarray]
Singles = NDArray[np.float32]
Reals = NDArray[np.float64]
Weights = Callable[[int | None, str], Singles]
"""The function that reads a tensor, see `Contents.tensor`."""

LINEAR_INPUTS = {
    "q_proj": "attention_input",
    "k_proj": "attention_input",
    "v_proj": "attention_input",
    "o_proj": "head_outputs",
    "gate_proj": "feed_forward_input",
    "up_proj": "feed_forward_input",
    "down_proj": "feed_forward_product",
}
"""The recorded tensor that is the input of each linear layer."""

STORED = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "input": "input_norm",
    "post_attention": "feed_forward_norm",
}
"""Names of a layer's tensors for `Weights`, by their names here."""

NORM_WEIGHTS = ("input", "post_attention")
"""Names of a layer's two RMSNorms."""

BLOCK = 256
"""Queries whose scores are computed together: a context of 8192 needs 16 MB for each head."""


def capture_activations(
    weights: Weights, tokens: np.ndarray, layers: Iterable[int]
) -> dict[int, Tensors]:
    """Run the model once over `tokens` and return the activations of `layers`.

    Returns
    -------
    dict
        For each layer, float32 arrays with the token as first axis: ``states_in``,
        ``attention_input``, ``q_before_rope``, ``k_before_rope``, ``q``, ``k``, ``v`` (axes token,
        head, element), ``head_outputs``, ``attention_output``, ``feed_forward_input``,
        ``feed_forward_product``, ``states_out``.
    """
    wanted = set(layers)
    recorded: dict[int, Tensors] = {}
    if not wanted:
        return recorded
    states = weights(None, "embedding")[tokens]
    angles = _angles(len(tokens))
    for layer in range(max(wanted) + 1):
        tensors = run_layer(capture_weights(weights, layer), states, angles)
        states = tensors["states_out"]
        if layer in wanted:
            recorded[layer] = tensors
    return recorded


def capture_weights(weights: Weights, layer: int) -> Tensors:
    """Return the weights of the linear layers and the RMSNorms of a layer, float32.

    The file stores the two elements of a rotary pair next to each other. Here they are half a head
    apart, as in the published model.
    """
    captured = {name: weights(layer, stored) for name, stored in STORED.items()}
    for name in ("q_proj", "k_proj"):
        weight = captured[name]
        pairs = weight.reshape(-1, SMOLLM2.head_size // 2, 2, weight.shape[1])
        captured[name] = pairs.swapaxes(1, 2).reshape(weight.shape)
    return captured


def run_layer(weights: Tensors, states: Singles, angles: Reals) -> Tensors:
    """Return the activations of one decoder layer, see `capture_activations`.

    Parameters
    ----------
    weights : dict
        The layer's weights, see `capture_weights`.
    states : numpy.ndarray
        Hidden states, shape (tokens, hidden_size).
    angles : numpy.ndarray
        Angle of each rotary pair, shape (tokens, head_size / 2).
    """

    def linear(name: str, inputs: Singles) -> Reals:
        return inputs.astype(np.float64) @ weights[name].astype(np.float64).T

    def split(vectors: Reals) -> Singles:
        return _rounded(vectors).reshape(len(states), -1, SMOLLM2.head_size)

    tensors = {"states_in": states}
    here = tensors["attention_input"] = _rms_norm(states, weights["input"])
    for name, projection in (
        ("q_before_rope", "q_proj"),
        ("k_before_rope", "k_proj"),
        ("v", "v_proj"),
    ):
        tensors[name] = split(linear(projection, here))
    tensors["q"], tensors["k"] = (
        _rotate(tensors[name], angles) for name in ("q_before_rope", "k_before_rope")
    )
    heads = _attend(tensors["q"], tensors["k"], tensors["v"])
    tensors["head_outputs"] = heads.reshape(len(states), -1)
    tensors["attention_output"] = _rounded(linear("o_proj", tensors["head_outputs"]))
    states = _rounded(states.astype(np.float64) + tensors["attention_output"])
    here = tensors["feed_forward_input"] = _rms_norm(states, weights["post_attention"])
    gate = linear("gate_proj", here)
    product = gate / (1 + np.exp(-gate)) * linear("up_proj", here)
    down = linear("down_proj", _rounded(product))
    tensors["feed_forward_product"] = _rounded(product)
    tensors["states_out"] = _rounded(states.astype(np.float64) + _rounded(down))
    return tensors


def _angles(tokens: int) -> Reals:
    """Return the angle of each rotary pair at each position."""
    pair = np.arange(SMOLLM2.head_size // 2)
    turns = SMOLLM2.rope_base ** (-2.0 * pair / SMOLLM2.head_size)
    return np.arange(tokens)[:, np.newaxis] * turns


def _rms_norm(states: Singles, weight: Singles) -> Singles:
    """Return x / sqrt(mean(x**2) + epsilon) * weight."""
    x = states.astype(np.float64)
    scale = np.sqrt(np.mean(x**2, axis=1, keepdims=True) + SMOLLM2.norm_epsilon)
    return _rounded(x / scale * weight)


def _rotate(heads: Singles, angles: Reals) -> Singles:
    """Apply the rotary embedding to heads of axes token, head, element."""
    cosines, sines = np.cos(angles)[:, np.newaxis], np.sin(angles)[:, np.newaxis]
    x, y = np.split(heads.astype(np.float64), 2, axis=-1)
    return _rounded(np.concatenate([x * cosines - y * sines, y * cosines + x * sines], axis=-1))


def _attend(q: Singles, k: Singles, v: Singles) -> Singles:
    """Return the heads' outputs of causal softmax attention; axes token, head, element."""
    outputs = np.empty_like(q)
    members = q.shape[1] // k.shape[1]
    for head in range(q.shape[1]):
        keys, values = (part[:, head // members].astype(np.float64) for part in (k, v))
        for start in range(0, len(q), BLOCK):
            queries = q[start : start + BLOCK, head].astype(np.float64)
            end = start + len(queries)
            scores = queries @ keys[:end].T / np.sqrt(SMOLLM2.head_size)
            scores[~np.tri(len(queries), end, start, dtype=bool)] = -np.inf
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            powers /= powers.sum(axis=1, keepdims=True)
            outputs[start:end, head] = powers @ values[:end]
    return outputs


def _rounded(values: Reals) -> Singles:
    return values.astype(np.float32)
