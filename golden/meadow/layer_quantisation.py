"""Quantisation of a layer's real weights to the accelerator's integers: smoothing, steps, scales.

Every tensor has one step. Steps of activations are calibrated on a text, for which the layer is
computed in float64. Steps of intermediate values are chosen so that no stage needs a second factor.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import scale_and_shift
from golden.llm.layers import LayerWeights, rotary_angles, rotated, silu
from golden.meadow.tile.hybrid_tile import bias_of
from golden.meadow.tile.pipelined_softmax import exponential_table
from golden.meadow.tile.requantisation import Integers
from golden.nonlinear.row_norm import quantise_weights
from hdl.meadow.parameters import GATE_DROP, MOST_LIFT, NORM_DROP, MeadowParameters
from hdl.meadow.tile.element_parameters import SCALE_BITS
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT, MOST_EXPONENT, RESULT
from hdl.model_shape import NORM_EPSILON
from hdl.nonlinear.activation_functions import VALUE, Activation
from hdl.nonlinear.row_norm import OUTPUT
from hdl.parameters import require

Reals = NDArray[np.float64]

HEADROOM = 2.0
"""Range of 16-bit inputs of linear layers over that of the calibration text, with token exponents.

The exponents keep all 8 bits of a smaller row, so that a larger range costs nothing.
"""

FINEST_TILE = 2.0**-10
"""Smallest step of a tile's weights, relative to that of the tensor."""

NORM_UNIT = float(OUTPUT.resolution) * (1 << NORM_DROP)
"""Real value of an INT8 step of a norm's output, for a weight of 1."""


class Smoothing(NamedTuple):
    """Exponents of SmoothQuant for the inputs of linear layers, by the names of `real_steps`."""

    input: float
    middle: float
    attended: float
    product: float


SMOOTHING = Smoothing(0.5, 0.5, 0.5, 0.5)
"""Exponents without token exponents, those of SmoothQuant."""

TOKEN_SMOOTHING = Smoothing(0.4, 0.4, 0.5, 0.35)
"""Exponents with token exponents: fewer outliers remain in the rows, so that weights get less."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerLayer:
    """A decoder layer in integers.

    Members
    -------
    matrices : dict[str, numpy.ndarray]
        INT8, by the names of `LayerWeights`, shape (tiles, elements, size); a tile is a head or the
        same number of outputs. ``"gate"`` only with a gate.
    norms : tuple[numpy.ndarray, numpy.ndarray]
        Fixed-point weights of both norms as integers.
    epsilon : int
        Epsilon of the norms times the elements of a row, in squared steps of the hidden state.
    factors : dict[str, tuple[int, int]]
        Scale and shift of the results of each matrix, and of ``"score"`` and ``"attended"``.
    tile_factors : dict[str, numpy.ndarray]
        With `tile_scales`, scale and shift of the results of each tile of each matrix, shape
        (tiles, 2), in place of those in `factors`.
    lifts : dict[str, int]
        Left shift of the results of ``"output"`` and ``"down"`` when they are added to the hidden
        state.
    table : numpy.ndarray
        Exponential of each distance.
    steps : dict[str, float]
        Real value of one step of the tensors between the stages; with token exponents, those of
        inputs of linear layers are in INT8 at `BASE_EXPONENT`.
    biases : dict[str, numpy.ndarray]
        Biases of matrices in steps of their sums, shape (tiles, size); empty without biases.
    norm_biases : tuple[numpy.ndarray, ...]
        Biases of both layer norms in Q6.10; empty with RMSNorm.
    activated_scale : int
        Without a gate: factor of activated values, whose product is INT8 after a right shift by
        `GATE_DROP` bits.
    """

    matrices: dict[str, Integers]
    norms: tuple[Integers, Integers]
    epsilon: int
    factors: dict[str, tuple[int, int]]
    lifts: dict[str, int]
    table: Integers
    steps: dict[str, float]
    biases: dict[str, Integers] = field(default_factory=dict)
    norm_biases: tuple[Integers, ...] = ()
    activated_scale: int = 0
    tile_factors: dict[str, Integers] = field(default_factory=dict)

    def factor(self, name: str) -> tuple[int, int] | Integers:
        """Return scale and shift of a matrix's results, or those of each tile."""
        return self.tile_factors[name] if name in self.tile_factors else self.factors[name]


@dataclass(frozen=True, eq=False)
class RealLayer:
    """A layer in float64.

    Members
    -------
    matrices : dict[str, numpy.ndarray]
        By the names and in the shapes of `LayerWeights`; ``"gate"`` only with a gate.
    norms : tuple[numpy.ndarray, numpy.ndarray]
        Factors of both norms' outputs: that of SmoothQuant, times the norm's own weights unless
        they are folded into the matrices.
    norm_biases : tuple
        Biases of the norms; zero for RMSNorm.
    biases : dict[str, numpy.ndarray]
        Biases of the matrices that have one, in the shape of their outputs.
    """

    matrices: dict[str, Reals]
    norms: tuple[Reals, Reals]
    norm_biases: tuple[Reals | float, Reals | float] = (0.0, 0.0)
    biases: dict[str, Reals] = field(default_factory=dict)


def real_layer(weights: LayerWeights) -> RealLayer:
    """Return a layer without biases and without smoothing."""
    ones = np.ones(len(weights.gate))
    return RealLayer(dict(vars(weights)), (ones, ones))


def real_steps(
    layer: RealLayer,
    states: Reals,
    positions: Integers,
    past: tuple[Reals, Reals],
    p: MeadowParameters,
) -> dict[str, Reals]:
    """Compute a layer in float64 for several tokens; return all values between its stages.

    Parameters
    ----------
    layer : RealLayer
        The layer.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size].
    positions : numpy.ndarray
        Consecutive positions of the tokens.
    past : tuple
        Cached keys and values [kv_heads, cached, size] of the earlier positions.
    p : MeadowParameters
        Kind of norm, activation, embedding and mask; the sizes are those of the layer.
    """
    w, size = layer.matrices, layer.matrices["query"].shape[2]
    biases = {name: layer.biases.get(name, np.zeros(1)) for name in w}

    def norm(number: int, rows: Reals) -> Reals:
        rows = normalised(rows - rows.mean(-1, keepdims=True) if p.layer_norm else rows)
        return rows * layer.norms[number] + layer.norm_biases[number]

    found = {"input": norm(0, states)}
    for name in ("query", "key", "value"):
        found[name] = np.einsum("td,dhs->hts", found["input"], w[name])
        found[name] += biases[name][..., np.newaxis, :]
    if p.rotary:
        angles = rotary_angles(positions, size, p.rope_base)[np.newaxis]
        for name in ("query", "key"):
            found[name] = rotated(found[name], np.cos(angles), np.sin(angles))
    keys, values = (
        np.concatenate([old, found[name]], axis=1)
        for old, name in zip(past, ("key", "value"), strict=True)
    )
    members = len(found["query"]) // len(keys)
    scores = np.matmul(found["query"], np.repeat(keys, members, axis=0).swapaxes(1, 2))
    seen = (np.arange(keys.shape[1]) <= positions[:, np.newaxis]) | (not p.causal)
    powers = np.where(seen, np.exp(scores - np.where(seen, scores, -np.inf).max(-1)[..., None]), 0)
    shares = powers / powers.sum(-1, keepdims=True)
    found["score"] = np.where(seen, scores, 0)
    found["attended"] = np.matmul(shares, np.repeat(values, members, axis=0))
    found["output"] = np.einsum("hts,hsd->td", found["attended"], w["output"]) + biases["output"]
    middle = states + found["output"]
    found["middle"] = norm(1, middle)
    found["up"] = found["middle"] @ w["up"] + biases["up"]
    if p.gated:
        found["gate"] = found["middle"] @ w["gate"] + biases["gate"]
        found["product"] = exact_activation(found["gate"], p.activation) * found["up"]
    else:
        found["product"] = exact_activation(found["up"], p.activation)
    found["down"] = found["product"] @ w["down"] + biases["down"]
    return found | {"keys": keys, "values": values, "states": middle + found["down"]}


def exact_activation(values: Reals, function: Activation) -> Reals:
    """Return an activation in float64."""
    if function is Activation.SILU:
        return silu(values)
    if function is Activation.RELU:
        return np.maximum(values, 0)
    return values * np.vectorize(math.erfc)(-values / math.sqrt(2)) / 2


def epsilon_of(p: MeadowParameters, step: float) -> int:
    """Return the norms' epsilon in the format of `IntegerLayer.epsilon`."""
    return round(p.hidden_size * NORM_EPSILON / step**2)


def normalised(states: Reals) -> Reals:
    """Return rows divided by their root mean square."""
    return states / np.sqrt(np.mean(states**2, axis=-1, keepdims=True) + NORM_EPSILON)


def smoothing_ratio(inputs: Reals, weights: Reals, exponent: float = 0.5) -> Reals:
    """Return the factor of each channel's weights from the channel's maximum input and weight."""
    return np.maximum(inputs, 1e-5) ** exponent / np.maximum(weights, 1e-5) ** (1 - exponent)


def fitting_ratio(ratio: Reals, inputs: Reals, own: Reals, p: MeadowParameters) -> Reals:
    """Return smoothing ratios, increased where a norm's weights would exceed their 16 bits.

    Parameters
    ----------
    ratio : numpy.ndarray
        Result of `smoothing_ratio` for a norm's outputs.
    inputs : numpy.ndarray
        Maximum magnitude of each channel's output before smoothing.
    own : numpy.ndarray
        The norm's weights before smoothing.
    p : MeadowParameters
        Format of the weights.
    """
    most = ((1 << 15) - 1) / (1 << p.weight_fraction)
    # An increased ratio can reduce the step of all channels, so that further ratios increase.
    for _round in range(100):
        step = float((inputs / ratio).max()) / 127 or 1.0
        least = (1 + 1e-9) * np.abs(own) * NORM_UNIT / (step * most)
        if (ratio >= least).all():
            break
        ratio = np.maximum(ratio, least)
    return ratio


def smoothed(
    layer: RealLayer,
    found: dict[str, Reals],
    p: MeadowParameters,
    exponents: Smoothing | None = None,
) -> RealLayer:
    """Scale the input channels of every matrix (SmoothQuant) without changing the layer's function.

    Parameters
    ----------
    layer : RealLayer
        The layer.
    found : dict
        `real_steps` of a text.
    p : MeadowParameters
        As in `real_steps`.
    exponents : Smoothing, optional
        Exponents of the activations' magnitudes; those of the weights' are 1 minus them. By default
        `SMOOTHING`, with token exponents `TOKEN_SMOOTHING`.
    """
    w = layer.matrices
    members = w["query"].shape[1] // w["value"].shape[1]
    powers = exponents or (TOKEN_SMOOTHING if p.token_exponents else SMOOTHING)

    def largest(*matrices: Reals) -> Reals:
        return np.max([np.abs(one).reshape(len(one), -1).max(1) for one in matrices], axis=0)

    wide = [name for name in ("gate", "up") if name in w]
    first, second = (
        fitting_ratio(smoothing_ratio(inputs, weights, power), inputs, own, p)
        for inputs, weights, own, power in zip(
            (np.abs(found[name]).max(0) for name in ("input", "middle")),
            (largest(*(w[name] for name in names)) for names in (("query", "key", "value"), wide)),
            layer.norms,
            (powers.input, powers.middle),
            strict=True,
        )
    )
    # Query heads that share values must have the same factors.
    heads = [np.abs(found["attended"]).max(1), np.abs(w["output"]).max(2)]
    heads = [one.reshape(len(one) // members, members, -1).max(1) for one in heads]
    third = smoothing_ratio(heads[0], heads[1], powers.attended)
    fourth = np.ones(len(w["down"]))
    # A factor cannot be moved through a nonlinear activation, except through ReLU. With ReLU the
    # input of the activation is used, since a channel may be 0 after it for the whole text.
    if p.gated or p.activation is Activation.RELU:
        name = "product" if p.gated else "up"
        fourth = smoothing_ratio(np.abs(found[name]).max(0), largest(w["down"]), powers.product)
    # Factors of the rows of each matrix, and divisors of its outputs and biases.
    inputs = dict.fromkeys(("query", "key", "value"), first[:, None, None])
    inputs |= dict.fromkeys(wide, second[:, None])
    inputs |= {"output": np.repeat(third, members, axis=0)[..., None], "down": fourth[:, None]}
    outputs = {"value": third, "up": fourth}
    return RealLayer(
        {name: matrix * inputs[name] / outputs.get(name, 1.0) for name, matrix in w.items()},
        (layer.norms[0] / first, layer.norms[1] / second),
        (layer.norm_biases[0] / first, layer.norm_biases[1] / second),
        {name: bias / outputs.get(name, 1.0) for name, bias in layer.biases.items()},
    )


def integer_layer(
    layer: RealLayer, found: dict[str, Reals], p: MeadowParameters, step: float
) -> IntegerLayer:
    """Quantise a layer to integers.

    Parameters
    ----------
    layer : RealLayer
        The layer, smoothed or not.
    found : dict
        `real_steps` of this layer for a text, which determine the steps.
    p : MeadowParameters
        Dimensions of model and accelerator.
    step : float
        Step of the hidden states.
    """
    steps = {
        name: float(np.abs(found[name]).max()) / 127 or 1.0
        for name in ("input", "middle", "query", "key", "value", "score", "attended", "product")
    }
    if p.token_exponents:
        for name in ("input", "middle", "attended"):
            steps[name] *= HEADROOM
        # The product has 24 bits, so that `up_proj` can use all of its 16.
        steps["up"] = float(np.abs(found["up"]).max()) / ((1 << RESULT.width - 1) - 1) or 1.0
    scale = _feed_forward_steps(steps, p)
    lifts, matrices, weight_steps = {}, {}, {}
    for name in ("output", "down"):
        most = float(np.abs(found[name]).max()) / step / (1 << 15)
        lifts[name] = min(max(int(np.ceil(np.log2(most or 1))), 0), MOST_LIFT)
        steps[name] = step * 2.0 ** lifts[name]
    for name, matrix in layer.matrices.items():
        matrices[name], weight_steps[name] = quantised_tiles(_tiles(matrix, p), p)
    inputs = dict.fromkeys(("query", "key", "value"), "input") | {"output": "attended"}
    inputs |= dict.fromkeys(("gate", "up"), "middle") | {"down": "product"}
    sum_steps = {name: steps[inputs[name]] * weight_steps[name] for name in matrices}
    scales = {
        name: np.array([result_factor(float(own) / steps[name], p) for own in sum_steps[name]])
        for name in matrices
    }
    factors = {
        name: (int(found[0, 0]), int(found[0, 1]))
        for name, found in scales.items()
        if not p.tile_scales
    }
    factors["score"] = scale_and_shift(steps["query"] * steps["key"] / steps["score"])
    fraction = p.probability_bits - (BASE_EXPONENT if p.token_exponents else 0)
    factors["attended"] = scale_and_shift(steps["value"] * 2.0**-fraction / steps["attended"])
    norms = tuple(
        quantise_weights(own * NORM_UNIT / steps[name], p.norm)
        for own, name in zip(layer.norms, ("input", "middle"), strict=True)
    )
    biases = {}
    if p.biases:
        nothing = np.zeros(1)
        for name, tiles in matrices.items():
            # Biases are flattened in the order of outputs, so that a tile's are adjacent.
            real = np.broadcast_to(layer.biases.get(name, nothing), layer_outputs(layer, name))
            biases[name] = bias_of(real.reshape(len(tiles), -1), sum_steps[name][:, np.newaxis])
    return IntegerLayer(
        matrices=matrices,
        norms=(norms[0], norms[1]),
        epsilon=epsilon_of(p, step),
        factors=factors,
        lifts=lifts,
        table=exponential_table(steps["score"]),
        steps=steps,
        biases=biases,
        norm_biases=_norm_biases(layer, steps) if p.layer_norm else (),
        activated_scale=scale,
        tile_factors=scales if p.tile_scales else {},
    )


def result_factor(factor: float, p: MeadowParameters) -> tuple[int, int]:
    """Return scale and shift of a matrix's results.

    With token exponents they are those of exponent 0, and the factor is that of `BASE_EXPONENT`.

    Raises
    ------
    ValueError
        If the shift of the largest exponent does not fit.
    """
    if not p.token_exponents:
        return scale_and_shift(factor)
    scale, shift = scale_and_shift(math.ldexp(factor, BASE_EXPONENT))
    require(
        shift + MOST_EXPONENT < 64, "a shift and MOST_EXPONENT must be at most 63 together", shift
    )
    return scale, shift


def layer_outputs(layer: RealLayer, name: str) -> tuple[int, ...]:
    """Return the shape of a matrix's outputs."""
    matrix = layer.matrices[name]
    return matrix.shape[2 if name == "output" else 1 :]


def _feed_forward_steps(steps: dict[str, float], p: MeadowParameters) -> int:
    """Choose the steps around the activation; return the factor of an activation without a gate."""
    unit = float(VALUE.resolution)
    # SiLU and GeLU have the unit's format. With ReLU and no gate, the upper byte is the result.
    if p.activation is Activation.RELU and not p.gated:
        unit = steps["product"] / (1 << 8)
    if p.gated:
        # The right shift by GATE_DROP determines the step of the other factor.
        steps["gate"] = unit
        if p.token_exponents:
            steps["product"] = steps["up"] * unit * (1 << GATE_DROP)
        else:
            steps["up"] = steps["product"] / unit / (1 << GATE_DROP)
        return 0
    steps["up"] = unit
    scale = (1 << SCALE_BITS) - 1
    if not p.token_exponents:
        scale = min(int(unit / steps["product"] * (1 << GATE_DROP)), scale)
    # The scale is an integer. The step is adapted to it, which avoids a second rounding error.
    steps["product"] = unit * (1 << GATE_DROP) / scale
    return scale


def _norm_biases(layer: RealLayer, steps: dict[str, float]) -> tuple[Integers, ...]:
    """Return the biases of both norms in steps before the right shift by NORM_DROP."""
    found, most = [], 1 << OUTPUT.width - 1
    for bias, own, name in zip(layer.norm_biases, layer.norms, ("input", "middle"), strict=True):
        raw = np.rint(np.broadcast_to(bias, own.shape) / steps[name] * (1 << NORM_DROP))
        found.append(np.clip(raw, -most, most - 1).astype(np.int64))
    return tuple(found)


def _tiles(matrix: Reals, p: MeadowParameters) -> Reals:
    """Return a matrix of `LayerWeights` as tiles (tiles, elements, size)."""
    inputs = p.hidden_size if len(matrix) == p.heads and matrix.ndim == 3 else len(matrix)
    return matrix.reshape(inputs, -1, p.head_size).swapaxes(0, 1)


def quantised_tiles(tiles: Reals, p: MeadowParameters) -> tuple[Integers, Reals]:
    """Return tiles in INT8, and the step of each tile, or one step for all of them.

    The step of a tile is at least `FINEST_TILE` of the tensor's: smaller weights do not change
    results, whose step all tiles share.
    """
    largest = np.abs(tiles).max(axis=(1, 2)) / 127
    whole = float(largest.max()) or 1.0
    steps = np.maximum(largest, FINEST_TILE * whole) if p.tile_scales else np.array([whole])
    integers = np.clip(np.rint(tiles / steps[:, np.newaxis, np.newaxis]), -128, 127)
    return integers.astype(np.int64), steps


def quantised_layer(
    weights: LayerWeights | RealLayer,
    states: Reals,
    p: MeadowParameters,
    step: float,
    *,
    smooth: bool = True,
) -> tuple[IntegerLayer, RealLayer]:
    """Return a layer in integers, with steps from the hidden states of a text, and in float64.

    Parameters
    ----------
    weights : LayerWeights or RealLayer
        The layer.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size] before the layer.
    p : MeadowParameters
        Dimensions of model and accelerator.
    step : float
        Step of the hidden states.
    smooth : bool
        Whether the layer is `smoothed`.
    """
    positions = np.arange(len(states))
    none = np.zeros((p.kv_heads, 0, p.head_size))
    layer = weights if isinstance(weights, RealLayer) else real_layer(weights)
    found = real_steps(layer, states, positions, (none, none), p)
    if smooth:
        layer = smoothed(layer, found, p)
        found = real_steps(layer, states, positions, (none, none), p)
    return integer_layer(layer, found, p, step), layer
