"""AWQ: scales of input channels and clipped groups, before a layer's weights are rounded.

AWQ (Lin et al., MLSys 2024) multiplies the weights of an input channel by a scale and divides the
channel's inputs by it: with a scale above 1, the channel's weights have a smaller rounding error.
The scales move into the norm or the matrix upstream, so that no product is added. The grids and the
order of the steps are those of the published code (`mit-han-lab/llm-awq`), which the scripts of
P3-LLM's authors call. A scheme of weights only: format and hardware are unchanged.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.bitmod_fp4 import quantise_weighted
from golden.llm.layers import rotary_angles, rotated, silu
from golden.llm.stored_tensors import Singles
from golden.p3llm.p3llm import fitting_group
from hdl.model_shape import ModelShape

POWERS = tuple(n / 20 for n in range(20))
"""Powers of the inputs' mean magnitudes that are tried as scales."""
SHRINKS = tuple(1 - n / 20 for n in range(10))
"""Ratios of a group's largest weight to which its weights are clipped, as they are tried."""
SMALLEST = 1e-4

Tensors = dict[str, Singles]
"""A layer's tensors by the names of `golden.llm.language_model.LanguageModel.tensor`."""


def channel_scales(inputs: NDArray[np.floating], power: float) -> NDArray[np.floating]:
    """Return the scale of each channel of inputs [tokens, channels] for a power."""
    scales = np.maximum(np.abs(inputs).mean(axis=0) ** power, SMALLEST)
    scaled: NDArray[np.floating] = scales / np.sqrt(scales.max() * scales.min())
    return scaled


def rounded(weights: Singles, group: int) -> Singles:
    """Return weights [outputs, inputs] in BitMoD FP4 with the scales of the largest weights.

    The group is halved until it divides the inputs. The 8-bit rounding of scales is not included.
    """
    inputs = weights.shape[1]
    own = fitting_group(inputs, group)
    found = quantise_weighted(weights, np.ones(inputs), group_size=own, ratios=(1.0,))
    return found.values().reshape(weights.shape)


def best_scales(
    inputs: Singles,
    weights: Sequence[Singles],
    outputs: Callable[[Sequence[Singles]], Singles],
    group: int,
) -> Singles:
    """Return the scales with the smallest mean squared error of a module's outputs.

    Ties resolve to the smallest power, 0, whose scales are 1.

    Parameters
    ----------
    inputs : numpy.ndarray
        The matrices' inputs, shape (tokens, channels).
    weights : Sequence[numpy.ndarray]
        Matrices with these inputs, each of shape (outputs, channels).
    outputs : Callable
        Function from the matrices to the module's outputs.
    group : int
        Weights per group.
    """
    exact = outputs(weights)
    best, least = np.ones(inputs.shape[1], np.float32), np.inf
    for power in POWERS:
        scales = channel_scales(inputs, power).astype(np.float32)
        trial = outputs([rounded(own * scales, group) / scales for own in weights])
        error = float(((trial - exact).astype(np.float64) ** 2).mean())
        if error < least:
            best, least = scales, error
    return best


def clipped(weights: Singles, inputs: Singles, group: int) -> Singles:
    """Return weights with each group clipped for the smallest error of its part of the outputs.

    Parameters
    ----------
    weights : numpy.ndarray
        Shape (outputs, channels).
    inputs : numpy.ndarray
        The matrix's inputs, shape (tokens, channels).
    group : int
        Weights per group, halved until it divides the inputs.
    """
    outputs, channels = weights.shape
    group = fitting_group(channels, group)
    groups = weights.reshape(outputs, -1, group)
    parts = inputs.reshape(len(inputs), -1, group).astype(np.float64).transpose(1, 2, 0)
    # The mean square of x . d over tokens is d' C d, with the mean C of x x'.
    products = parts @ parts.swapaxes(1, 2) / len(inputs)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    best, least = largest, np.full(largest.shape, np.inf)
    for shrink in SHRINKS:
        limit = largest * np.float32(shrink)
        trial = rounded(np.clip(groups, -limit, limit).reshape(weights.shape), group)
        off = (trial.reshape(groups.shape) - groups).astype(np.float64).swapaxes(0, 1)
        error = ((off @ products) * off).sum(axis=-1).T[..., np.newaxis]
        best = np.where(error < least, limit, best)
        least = np.minimum(error, least)
    return np.clip(groups, -best, best).reshape(weights.shape)


def activation_aware(tensors: Tensors, states: Singles, shape: ModelShape, group: int) -> Tensors:
    """Return a layer's tensors with scales folded in and groups clipped.

    Queries and keys are not clipped, as in the published code. The output projection has no scales
    if query heads share key/value heads: an output of the value matrix then has several inputs.

    Parameters
    ----------
    tensors : Tensors
        The layer's float32 tensors.
    states : numpy.ndarray
        The layer's input hidden states for the calibration text, float32 [tokens, hidden_size].
    shape : ModelShape
        Dimensions of the model.
    group : int
        Weights per group.
    """
    found = {name: own.astype(np.float32) for name, own in tensors.items()}
    inputs: Tensors = {}

    def scale(names: Sequence[str], upstream: str, outputs: Callable[..., Singles]) -> None:
        """Scale the channels of matrices with equal inputs, and the outputs upstream."""
        own = inputs[names[0]]
        scales = best_scales(own, [found[name] for name in names], outputs, group)
        for name in names:
            found[name] = found[name] * scales
            inputs[name] = own / scales
        above = found[upstream]
        found[upstream] = above / (scales if above.ndim == 1 else scales[:, np.newaxis])

    here = normed(states, found["input_norm"], shape)
    inputs |= dict.fromkeys(("query", "key", "value"), here)
    output = found["output"]
    heads = attended(here, found["query"], found["key"], found["value"], shape)
    after: NDArray[Any] = states + heads @ output.T
    further = normed(after, found["feed_forward_norm"], shape)
    inputs |= {"output": heads, **dict.fromkeys(("gate", "up"), further)}
    inputs["down"] = gated(further, found["gate"], found["up"])

    scale(
        ("query", "key", "value"),
        "input_norm",
        lambda own: attended(here, own[0], own[1], own[2], shape) @ output.T,
    )
    if shape.heads == shape.kv_heads:
        scale(("output",), "value", lambda own: heads @ own[0].T)
    down, middle = found["down"], inputs["down"]
    scale(("gate", "up"), "feed_forward_norm", lambda own: gated(further, own[0], own[1]) @ down.T)
    scale(("down",), "up", lambda own: middle @ own[0].T)
    for name in ("value", "output", "gate", "up", "down"):
        found[name] = clipped(found[name], inputs[name], group)
    return found


def normed(states: Singles, weight: Singles, shape: ModelShape) -> Singles:
    """Return normed states times the norm's weights."""
    square = np.mean(states**2, axis=-1, keepdims=True)
    result: NDArray[Any] = states / np.sqrt(square + np.float32(shape.norm_epsilon)) * weight
    return result


def attended(
    here: Singles, query: Singles, key: Singles, value: Singles, shape: ModelShape
) -> Singles:
    """Return the heads' outputs of all tokens [tokens, heads * head_size], causal."""
    tokens, size = len(here), shape.head_size
    angles = rotary_angles(np.arange(tokens), size, shape.rope_base)[:, np.newaxis]
    # The rotation of `golden.llm.layers` keeps float32.
    cosines: NDArray[Any] = np.cos(angles).astype(np.float32)
    sines: NDArray[Any] = np.sin(angles).astype(np.float32)

    def split(weights: Singles) -> NDArray[Any]:
        return (here @ weights.T).reshape(tokens, -1, size)

    queries, keys = (rotated(split(own), cosines, sines) for own in (query, key))
    values = split(value)
    later = np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
    outputs = []
    for head in range(shape.heads):
        kv = head // (shape.heads // shape.kv_heads)
        scores = queries[:, head] @ keys[:, kv].T * np.float32(size**-0.5) + later
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        outputs.append(powers / powers.sum(axis=-1, keepdims=True) @ values[:, kv])
    return np.concatenate(outputs, axis=-1)


def gated(here: Singles, gate: Singles, up: Singles) -> Singles:
    """Return the inputs of the down projection."""
    inner: NDArray[Any] = here @ gate.T
    product: NDArray[Any] = silu(inner) * (here @ up.T)
    return product
