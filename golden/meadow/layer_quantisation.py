"""From a decoder layer's real weights to the accelerator's integers: smoothing, steps, scales.

Every tensor has one step. Those of activations come from a text, on which the layer is computed in
float64; those of what lies between two stages are chosen so that no stage needs a second factor.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import scale_and_shift
from golden.llm.layers import EPSILON, LayerWeights, rotary_angles, rotated, silu
from golden.meadow.tile.pipelined_softmax import exponential_table
from golden.meadow.tile.requantisation import Integers, quantised
from golden.nonlinear.row_norm import quantise_weights
from hdl.meadow.parameters import GATE_DROP, MOST_LIFT, NORM_DROP, MeadowParameters
from hdl.nonlinear.activation_functions import VALUE
from hdl.nonlinear.row_norm import OUTPUT

Reals = NDArray[np.float64]

STATE_STEP = 2.0**-8
"""A step of the hidden state: SmolLM2's reach 22,530, of tokens that the others attend to."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerLayer:
    """A decoder layer in integers.

    Members
    -------
    matrices : dict[str, numpy.ndarray]
        INT8, by the name of `LayerWeights`: shape (tiles, elements, size), a tile being a head or
        as many outputs.
    norms : tuple[numpy.ndarray, numpy.ndarray]
        Raw weights of both norms.
    epsilon : int
        Elements times the norms' epsilon, in squared steps of the hidden state.
    factors : dict[str, tuple[int, int]]
        Scale and shift behind each matrix, and of ``"score"`` and ``"attended"``.
    lifts : dict[str, int]
        Powers of two by which the results of ``"output"`` and ``"down"`` are larger than a step of
        the hidden state.
    table : numpy.ndarray
        Exponentials of distances.
    steps : dict[str, float]
        Of the tensors between the stages.
    """

    matrices: dict[str, Integers]
    norms: tuple[Integers, Integers]
    epsilon: int
    factors: dict[str, tuple[int, int]]
    lifts: dict[str, int]
    table: Integers
    steps: dict[str, float]


@dataclass(frozen=True, eq=False)
class RealLayer:
    """A layer's matrices, and what multiplies the norms' outputs: those of SmoothQuant.

    Members
    -------
    weights : LayerWeights
        In float64.
    norms : tuple[numpy.ndarray, numpy.ndarray]
        Of both norms; ones before smoothing, since `LayerWeights` has their weights folded in.
    """

    weights: LayerWeights
    norms: tuple[Reals, Reals]


def real_layer(weights: LayerWeights) -> RealLayer:
    """Return a layer that is not smoothed."""
    ones = np.ones(len(weights.gate))
    return RealLayer(weights, (ones, ones))


def real_steps(
    layer: RealLayer, states: Reals, positions: Integers, past: tuple[Reals, Reals], base: float
) -> dict[str, Reals]:
    """Compute a layer in float64 for some tokens at once; return everything between its stages.

    Parameters
    ----------
    layer : RealLayer
        The layer.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size].
    positions : numpy.ndarray
        The tokens' positions, one behind the other.
    past : tuple
        Cached keys and values [kv_heads, cached, size] of the positions before.
    base : float
        Of the rotary embedding.
    """
    w, size = layer.weights, layer.weights.query.shape[2]
    angles = rotary_angles(positions, size, base)[np.newaxis]
    found = {"input": normalised(states) * layer.norms[0]}
    for name, matrix in (("query", w.query), ("key", w.key), ("value", w.value)):
        found[name] = np.einsum("td,dhs->hts", found["input"], matrix)
    for name in ("query", "key"):
        found[name] = rotated(found[name], np.cos(angles), np.sin(angles))
    keys, values = (
        np.concatenate([old, found[name]], axis=1)
        for old, name in zip(past, ("key", "value"), strict=True)
    )
    members = len(found["query"]) // len(keys)
    scores = np.matmul(found["query"], np.repeat(keys, members, axis=0).swapaxes(1, 2))
    seen = np.arange(keys.shape[1]) <= positions[:, np.newaxis]
    powers = np.where(seen, np.exp(scores - np.where(seen, scores, -np.inf).max(-1)[..., None]), 0)
    shares = powers / powers.sum(-1, keepdims=True)
    found["score"] = np.where(seen, scores, 0)
    found["attended"] = np.matmul(shares, np.repeat(values, members, axis=0))
    found["output"] = np.einsum("hts,hsd->td", found["attended"], w.output)
    middle = states + found["output"]
    found["middle"] = normalised(middle) * layer.norms[1]
    found["gate"], found["up"] = found["middle"] @ w.gate, found["middle"] @ w.up
    found["product"] = silu(found["gate"]) * found["up"]
    found["down"] = found["product"] @ w.down
    return found | {"keys": keys, "values": values, "states": middle + found["down"]}


def normalised(states: Reals) -> Reals:
    """Return rows over their root mean square."""
    return states / np.sqrt(np.mean(states**2, axis=-1, keepdims=True) + EPSILON)


def smoothing_ratio(inputs: Reals, weights: Reals, exponent: float = 0.5) -> Reals:
    """Return by how much each channel's weights grow, from the largest input and weight of each."""
    return np.maximum(inputs, 1e-5) ** exponent / np.maximum(weights, 1e-5) ** (1 - exponent)


def smoothed(layer: RealLayer, found: dict[str, Reals], exponent: float = 0.5) -> RealLayer:
    """Even out the input channels of every matrix (SmoothQuant); the layer's function stays.

    Parameters
    ----------
    layer : RealLayer
        The layer.
    found : dict
        `real_steps` of a text.
    exponent : float
        Of the activations' magnitudes; the weights' have the rest.
    """
    w = layer.weights

    def ratio(inputs: Reals, weights: Reals) -> Reals:
        return smoothing_ratio(inputs, weights, exponent)

    def largest(*matrices: Reals) -> Reals:
        return np.max([np.abs(one).reshape(len(one), -1).max(1) for one in matrices], axis=0)

    first = ratio(np.abs(found["input"]).max(0), largest(w.query, w.key, w.value))
    second = ratio(np.abs(found["middle"]).max(0), largest(w.gate, w.up))
    # Query heads that share a value cannot be scaled apart.
    shared = w.value.shape[1]
    heads = [np.abs(found["attended"]).max(1), np.abs(w.output).max(2)]
    heads = [one.reshape(shared, -1, one.shape[-1]).max(1) for one in heads]
    third = ratio(*heads)
    fourth = ratio(np.abs(found["product"]).max(0), largest(w.down))
    members = w.query.shape[1] // shared
    weights = LayerWeights(
        query=w.query * first[:, None, None],
        key=w.key * first[:, None, None],
        value=w.value * first[:, None, None] / third,
        output=w.output * np.repeat(third, members, axis=0)[..., None],
        gate=w.gate * second[:, None],
        up=w.up * second[:, None] / fourth,
        down=w.down * fourth[:, None],
    )
    return RealLayer(weights, (layer.norms[0] / first, layer.norms[1] / second))


def integer_layer(layer: RealLayer, found: dict[str, Reals], p: MeadowParameters) -> IntegerLayer:
    """Bring a layer to integers.

    Parameters
    ----------
    layer : RealLayer
        The layer, smoothed or not.
    found : dict
        Its own `real_steps` of a text, by which the steps are chosen.
    p : MeadowParameters
        Dimensions.
    """
    steps = {
        name: float(np.abs(found[name]).max()) / 127 or 1.0
        for name in ("input", "middle", "query", "key", "value", "score", "attended", "product")
    }
    # SiLU's format is the unit's; what GATE_DROP takes away makes the other factor's step.
    steps["gate"] = float(VALUE.resolution)
    steps["up"] = steps["product"] / float(VALUE.resolution) / (1 << GATE_DROP)
    lifts, matrices, weight_steps = {}, {}, {}
    for name in ("output", "down"):
        most = float(np.abs(found[name]).max()) / STATE_STEP / (1 << 15)
        lifts[name] = min(max(int(np.ceil(np.log2(most or 1))), 0), MOST_LIFT)
        steps[name] = STATE_STEP * 2.0 ** lifts[name]
    for name, matrix in vars(layer.weights).items():
        matrices[name], weight_steps[name] = quantised(_tiles(matrix, p))
    inputs = dict.fromkeys(("query", "key", "value"), "input") | {"output": "attended"}
    inputs |= dict.fromkeys(("gate", "up"), "middle") | {"down": "product"}
    factors = {
        name: scale_and_shift(steps[inputs[name]] * weight_steps[name] / steps[name])
        for name in matrices
    }
    factors["score"] = scale_and_shift(steps["query"] * steps["key"] / steps["score"])
    factors["attended"] = scale_and_shift(
        steps["value"] * 2.0**-p.probability_bits / steps["attended"]
    )
    unit = float(OUTPUT.resolution) * (1 << NORM_DROP)
    norms = tuple(
        quantise_weights(own * unit / steps[name], p.norm)
        for own, name in zip(layer.norms, ("input", "middle"), strict=True)
    )
    return IntegerLayer(
        matrices=matrices,
        norms=(norms[0], norms[1]),
        epsilon=round(p.hidden_size * EPSILON / STATE_STEP**2),
        factors=factors,
        lifts=lifts,
        table=exponential_table(steps["score"]),
        steps=steps,
    )


def _tiles(matrix: Reals, p: MeadowParameters) -> Reals:
    """Return a matrix of `LayerWeights` as tiles (tiles, elements, size)."""
    inputs = p.hidden_size if len(matrix) == p.heads and matrix.ndim == 3 else len(matrix)
    return matrix.reshape(inputs, -1, p.head_size).swapaxes(0, 1)


def quantised_layer(
    weights: LayerWeights, states: Reals, p: MeadowParameters, *, exponent: float | None = 0.5
) -> tuple[IntegerLayer, RealLayer]:
    """Return a layer in integers, its steps by a text's hidden states, and what it stands for."""
    positions = np.arange(len(states))
    none = np.zeros((p.kv_heads, 0, p.head_size))
    layer = real_layer(weights)
    found = real_steps(layer, states, positions, (none, none), p.base)
    if exponent is not None:
        layer = smoothed(layer, found, exponent)
        found = real_steps(layer, states, positions, (none, none), p.base)
    return integer_layer(layer, found, p), layer
