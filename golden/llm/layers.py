"""A decoder layer in float64, directly from its equations, and a layer's real weights.

Each step is a separate function, so that a paper's own float64 reference can use it.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.model import SMOLLM2
from golden.llm.trace import Trace
from hdl.model_shape import NORM_EPSILON, ModelDimensions

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """A layer's matrices with norm weights and scales folded in: float64, or codes of a system.

    Each norm's weights are folded into the matrices that follow it, and ``1 / sqrt(head_size)``
    into that of the queries. The two elements of a rotary pair are adjacent in a head. This order
    is equal for queries and keys, so no score changes.

    Members
    -------
    query, key, value : numpy.ndarray
        Shape (hidden_size, heads or kv_heads, head_size).
    output : numpy.ndarray
        Shape (heads, head_size, hidden_size).
    gate, up : numpy.ndarray
        Shape (hidden_size, intermediate_size).
    down : numpy.ndarray
        Shape (intermediate_size, hidden_size).
    """

    query: NDArray[Any]
    key: NDArray[Any]
    value: NDArray[Any]
    output: NDArray[Any]
    gate: NDArray[Any]
    up: NDArray[Any]
    down: NDArray[Any]

    def mapped(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "LayerWeights":
        """Return the weights with a function applied to every matrix, such as a quantiser."""
        return LayerWeights(*(change(getattr(self, field.name)) for field in fields(self)))


def padded(weights: LayerWeights, elements: int) -> LayerWeights:
    """Return a layer whose intermediate size is extended to `elements` with zeros."""
    missing = elements - weights.gate.shape[1]
    return replace(
        weights,
        gate=np.pad(weights.gate, ((0, 0), (0, missing))),
        up=np.pad(weights.up, ((0, 0), (0, missing))),
        down=np.pad(weights.down, ((0, missing), (0, 0))),
    )


def real_weights(sizes: ModelDimensions, trace: Trace, layer: int) -> LayerWeights:
    """Return SmolLM2's matrices in float64, folded as `LayerWeights` specifies.

    If the system is smaller than the model, it uses the first elements and heads. Each matrix is
    then scaled by the square root of the ratio of input sizes, which keeps its outputs at their
    magnitude. If the system is larger, elements and heads are repeated.
    """
    size, theirs = sizes.head_size, trace.head_size
    # Rotary pairs are adjacent here; in the model they are half a head apart.
    half = np.arange(size // 2) % (theirs // 2)
    pairs = np.stack([half, half + theirs // 2], axis=-1).reshape(-1)
    plain = np.arange(size) % theirs

    def columns(heads: int, own: int, order: NDArray[Any]) -> NDArray[Any]:
        return ((np.arange(heads) % own)[:, np.newaxis] * theirs + order).reshape(-1)

    states = np.arange(sizes.hidden_size) % trace.hidden_size
    inner = np.arange(sizes.intermediate_size) % SMOLLM2.intermediate_size

    def matrix(name: str, rows: NDArray[Any], columns: NDArray[Any], norm: str = "") -> Reals:
        weight = trace.linear(layer, name).weight.astype(np.float64).T
        own = trace.norm(layer, norm).astype(np.float64)[:, np.newaxis] if norm else 1.0
        grown = np.sqrt(max(1.0, len(weight) / len(rows)))
        return (weight * own)[np.ix_(rows, columns)] * grown

    def heads(name: str, count: int, own: int, order: NDArray[Any]) -> Reals:
        weight = matrix(name, states, columns(count, own, order), "input")
        return weight.reshape(sizes.hidden_size, count, size)

    outputs = matrix("o_proj", columns(sizes.heads, trace.heads, plain), states)
    return LayerWeights(
        query=heads("q_proj", sizes.heads, trace.heads, pairs) / np.sqrt(size),
        key=heads("k_proj", sizes.kv_heads, trace.kv_heads, pairs),
        value=heads("v_proj", sizes.kv_heads, trace.kv_heads, plain),
        output=outputs.reshape(sizes.heads, size, sizes.hidden_size),
        gate=matrix("gate_proj", states, inner, "post_attention"),
        up=matrix("up_proj", states, inner, "post_attention"),
        down=matrix("down_proj", inner, states),
    )


def exact_layer(
    weights: LayerWeights, state: Reals, angles: tuple[Reals, Reals], past: tuple[Reals, Reals]
) -> Reals:
    """Return the output hidden state of a layer.

    Parameters
    ----------
    weights : LayerWeights
        The layer's matrices, in float64.
    state : numpy.ndarray
        The layer's input hidden state.
    angles : tuple
        Cosines and sines for the token's position, each of shape (head_size / 2,).
    past : tuple
        Cached keys and values of earlier tokens, each of shape (kv_heads, tokens, head_size).
    """
    here = rms_norm(state)
    query, key, value = (
        np.tensordot(here, matrix, 1) for matrix in (weights.query, weights.key, weights.value)
    )
    query, key = (rotated(heads, *angles) for heads in (query, key))
    keys, values = (
        np.concatenate([old, new[:, np.newaxis]], axis=1)
        for old, new in zip(past, (key, value), strict=True)
    )
    state = state + np.tensordot(attended(query, keys, values), weights.output, 2)
    here = rms_norm(state)
    return state + (silu(here @ weights.gate) * (here @ weights.up)) @ weights.down


def rms_norm(x: Reals) -> Reals:
    """Return x / sqrt(mean(x**2) + epsilon); the weights are folded into the next matrices."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + NORM_EPSILON)


def rotary_angles(positions: NDArray[Any], head_size: int, base: float) -> Reals:
    """Return the angle of each pair at each position, shape of positions + (head_size / 2,)."""
    pair = np.arange(head_size // 2)
    return np.asarray(positions)[..., np.newaxis] * float(base) ** (-2.0 * pair / head_size)


def rotated(heads: Reals, cosines: Reals, sines: Reals) -> Reals:
    """Return the adjacent pairs of the last axis, rotated; cosines and sines are broadcast."""
    x, y = heads[..., 0::2], heads[..., 1::2]
    pairs = np.stack([x * cosines - y * sines, x * sines + y * cosines], axis=-1)
    return pairs.reshape(heads.shape)


def probabilities(queries: Reals, keys: Reals) -> Reals:
    """Return softmax of the scores, shape (heads, tokens).

    Parameters
    ----------
    queries : numpy.ndarray
        Shape (heads, head_size), scaled by ``1 / sqrt(head_size)``.
    keys : numpy.ndarray
        Shape (heads, tokens, head_size).
    """
    scores = np.einsum("hd,hld->hl", queries, keys)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def attended(queries: Reals, keys: Reals, values: Reals) -> Reals:
    """Return the heads' outputs, shape (heads, head_size).

    Parameters
    ----------
    queries : numpy.ndarray
        Shape (heads, head_size), scaled by ``1 / sqrt(head_size)``.
    keys, values : numpy.ndarray
        Shape (kv_heads, tokens, head_size); each group of adjacent query heads shares one KV head.
    """
    members = len(queries) // len(keys)
    keys, values = (np.repeat(part, members, axis=0) for part in (keys, values))
    return np.einsum("hl,hld->hd", probabilities(queries, keys), values)


def silu(x: Reals) -> Reals:
    """Return x / (1 + e**-x)."""
    return x / (1 + np.exp(-x))
