"""A real decoder layer: its float64 reference, and its integer weights, scales and steps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import scale_and_shift
from golden.kelle.low_bits import lost, quantised_weights, turned, turned_matrices
from golden.llm import Trace, layers
from golden.llm.layers import LayerWeights, rotary_angles, rotated
from golden.nonlinear import activation_functions
from hdl.kelle.array.matrix_parameters import BIAS_BITS
from hdl.kelle.instructions import PROJECTIONS, Operation
from hdl.kelle.parameters import KelleParameters
from hdl.model_shape import NORM_EPSILON
from hdl.nonlinear.activation_functions import Activation, Function
from hdl.nonlinear.row_norm import OUTPUT

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

SCORE_FRACTION = 10
PROBABILITY_FRACTION = 15
LIMIT = (1 << 15) - 1
MOST_BIAS = (1 << BIAS_BITS - 1) - 1
NORM_STEP = 2.0**-OUTPUT.fraction_bits
"""Quantisation step of a normalised element and of a gate."""

MARGIN = 1.1
"""Headroom above the largest value of a text, since the accelerator attends to fewer tokens."""


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear layer.

    Parameters
    ----------
    exact : numpy.ndarray
        float64 [inputs, outputs].
    weights : numpy.ndarray
        int64 or int8 [inputs, outputs], of 8 or 4 bits, with one scale per output.
    scale, shift : numpy.ndarray
        int64 [outputs], for the requantiser.
    bias : numpy.ndarray
        int64 [outputs], in units of the sums.
    exact_bias : numpy.ndarray
        float64 [outputs].
    """

    exact: Reals
    weights: Integers | NDArray[np.int8]
    scale: Integers
    shift: Integers
    bias: Integers = field(default_factory=lambda: np.zeros(1, np.int64))
    exact_bias: Reals = field(default_factory=lambda: np.zeros(1))


@dataclass(frozen=True, eq=False)
class ExactLayer:
    """A layer's linear maps in float64, with the norms' weights and biases folded in.

    Parameters
    ----------
    matrices : dict
        [inputs, outputs] by operation.
    biases : dict
        [outputs] by operation, for projections with biases.
    """

    matrices: dict[Operation, Reals]
    biases: dict[Operation, Reals] = field(default_factory=dict)

    def __call__(self, which: Operation, x: Reals) -> Reals:
        """Return the projection of vectors."""
        return x @ self.matrices[which] + self.biases.get(which, 0.0)


@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """A layer with the hidden states of a text.

    Parameters
    ----------
    states : numpy.ndarray
        float64 [tokens, width], inputs of the layer.
    quantised_states : numpy.ndarray
        int64 [tokens, width], the same in 16 bits.
    inputs : numpy.ndarray
        float64 [tokens, width], the states normalised.
    quantised : numpy.ndarray
        int64 [tokens, width], the same in Q6.10, as a prefill in software provides them.
    projections : dict
        `Projection` by operation.
    score, attend : tuple[int, int]
        Scale and shift of scores and of the attention's outputs.
    steps : dict
        Quantisation step of an operation's results; for `OUTPUT` and `DOWN` that of the state.
    epsilon : int
        Epsilon of the norms times `width`, in squared steps of the state.
    """

    states: Reals
    quantised_states: Integers
    inputs: Reals
    quantised: Integers
    projections: dict[Operation, Projection]
    score: tuple[int, int]
    attend: tuple[int, int]
    steps: dict[Operation, float]
    epsilon: int

    @property
    def matrices(self) -> dict[Operation, Reals]:
        """The exact matrices by operation."""
        return {which: projection.exact for which, projection in self.projections.items()}

    @property
    def exact(self) -> ExactLayer:
        """The exact maps."""
        biases = {which: projection.exact_bias for which, projection in self.projections.items()}
        return ExactLayer(self.matrices, biases)

    def word(self, p: KelleParameters, operation: Operation, slice_: int) -> list[list[int]]:
        """Return scales, shifts and biases of a slice of results, one of each per lane."""
        if operation in self.projections:
            here = slice(slice_ * p.rows, (slice_ + 1) * p.rows)
            own = self.projections[operation]
            biases = np.broadcast_to(own.bias, own.scale.shape)
            return [part[here].tolist() for part in (own.scale, own.shift, biases)]
        scale, shift = self.score if operation is Operation.SCORE else self.attend
        return [[scale] * p.rows, [shift] * p.rows, [0] * p.rows]


def exact_heads(layer: DecoderLayer, p: KelleParameters) -> tuple[Reals, Reals, Reals]:
    """Return rotated queries and keys, and values, of the whole text in float64.

    Returns
    -------
    tuple
        [tokens, query heads, head_size], ``1 / sqrt(head_size)`` folded in, and twice
        [tokens, heads, head_size].
    """
    return _heads(layer.exact, layer.inputs, p)


def exact_attention(
    layer: DecoderLayer,
    p: KelleParameters,
    heads: tuple[Reals, Reals, Reals],
    now: int,
    attended: list[Integers],
) -> Reals:
    """Return the attention block's output for one token, by Equations 1 and 2, in float64.

    Parameters
    ----------
    layer : DecoderLayer
        The layer.
    p : KelleParameters
        Dimensions of the accelerator.
    heads : tuple
        Result of `exact_heads`.
    now : int
        Position of the arriving token.
    attended : list[numpy.ndarray]
        For each key/value head the positions that the token attends to, its own included.
    """
    q, k, v = heads
    contexts = []
    for query in range(p.heads):
        head = query // p.group_size
        own = attended[head]
        contexts.append(
            layers.attended(q[now, [query]], k[own, head][np.newaxis], v[own, head][np.newaxis])
        )
    return layer.exact(Operation.OUTPUT, np.concatenate(contexts, axis=None))


def exact_layer(
    layer: DecoderLayer,
    p: KelleParameters,
    heads: tuple[Reals, Reals, Reals],
    now: int,
    attended: list[Integers],
) -> Reals:
    """Return the layer's output for one token in float64; parameters as in `exact_attention`."""
    state = layer.states[now] + exact_attention(layer, p, heads, now, attended)
    return state + _fed(exact_norm(state, p), layer.exact, p)[-1]


def real_layer(trace: Trace, number: int, p: KelleParameters) -> DecoderLayer:
    """Quantise a layer of SmolLM2, cut to size where the accelerator is smaller.

    Quantisation steps are those of the whole text, so that a token's key is the same whenever it is
    computed. The hidden state of a text's first token is hundreds of times larger than all others;
    the token belongs to a prefill, and its state saturates.
    """
    exact = matrices(layers.real_weights(p, trace, number), p)
    states = trace.hidden(number)[0][:, np.arange(p.hidden_size) % trace.hidden_size].astype(
        np.float64
    )
    return quantised_layer(ExactLayer(turned_matrices(exact, p)), turned(states, p), p)


def exact_norm(states: Reals, p: KelleParameters) -> Reals:
    """Return hidden states normalised in float64."""
    if p.layer_norm:
        states = states - states.mean(axis=-1, keepdims=True)
    return layers.rms_norm(states)


def quantised_layer(
    exact: ExactLayer, states: Reals, p: KelleParameters, state_step: float = 0.0
) -> DecoderLayer:
    """Quantise a layer, with steps from the input states of a text.

    Parameters
    ----------
    exact : ExactLayer
        Linear maps of the layer.
    states : numpy.ndarray
        float64 [tokens, width].
    p : KelleParameters
        Dimensions of the accelerator.
    state_step : float
        Quantisation step of hidden states; 0 for the smallest that holds those of the text.
    """
    inputs = exact_norm(states, p)
    steps = _steps(exact, states, inputs, p)
    if state_step:
        steps |= {Operation.OUTPUT: state_step, Operation.DOWN: state_step}
    given = {
        Operation.OUTPUT: steps[Operation.ATTEND],
        Operation.DOWN: steps[Operation.UP],
    }
    projections = {}
    for which, matrix in exact.matrices.items():
        weights, weight_steps = quantised_weights(matrix, p)
        factor = given.get(which, NORM_STEP) * (1 << lost(which, p)) / steps[which]
        scale, shift = np.array([scale_and_shift(factor * step) for step in weight_steps]).T
        bias = np.broadcast_to(exact.biases.get(which, 0.0), weight_steps.shape)
        whole = np.rint(bias / (factor * steps[which] * weight_steps))
        whole = np.clip(whole, -MOST_BIAS - 1, MOST_BIAS).astype(np.int64)
        projections[which] = Projection(matrix, weights, scale, shift, whole, bias)
    state_step = steps[Operation.DOWN]
    product = steps[Operation.QUERY] * steps[Operation.KEY] * (1 << lost(Operation.SCORE, p))
    return DecoderLayer(
        states=states,
        quantised_states=integers(states, state_step),
        inputs=inputs,
        quantised=integers(inputs, NORM_STEP),
        projections=projections,
        score=scale_and_shift(product * np.log2(np.e) * (1 << SCORE_FRACTION)),
        attend=scale_and_shift(2.0 ** (lost(Operation.ATTEND, p) - PROBABILITY_FRACTION)),
        steps=steps,
        epsilon=round(p.hidden_size * NORM_EPSILON / state_step**2),
    )


def integers(values: Reals, step: float) -> Integers:
    """Return values in 16 bits, in units of `step`, to nearest, saturating."""
    return np.clip(np.rint(values / step), -LIMIT - 1, LIMIT).astype(np.int64)


def matrices(weights: LayerWeights, p: KelleParameters) -> dict[Operation, Reals]:
    """Return a layer's matrices [inputs, outputs] by operation."""
    named = {
        Operation.QUERY: weights.query,
        Operation.KEY: weights.key,
        Operation.VALUE: weights.value,
        Operation.UP: weights.up,
    }
    if p.gated:
        named[Operation.GATE] = weights.gate
    exact = {which: matrix.reshape(p.hidden_size, -1) for which, matrix in named.items()}
    exact[Operation.OUTPUT] = weights.output.reshape(-1, p.hidden_size)
    exact[Operation.DOWN] = weights.down
    return {which: exact[which] for which in PROJECTIONS if which in exact}


def _heads(exact: ExactLayer, inputs: Reals, p: KelleParameters) -> tuple[Reals, Reals, Reals]:
    """Return queries and keys, rotated with `rotary`, and values, of normalised states."""
    q, k, v = (
        exact(which, inputs).reshape(len(inputs), -1, p.head_size)
        for which in (Operation.QUERY, Operation.KEY, Operation.VALUE)
    )
    if not p.rotary:
        return q, k, v
    angles = rotary_angles(np.arange(len(q)), p.head_size, p.rope_base)[:, np.newaxis]
    query, key = (rotated(heads, np.cos(angles), np.sin(angles)) for heads in (q, k))
    return query, key, v


def _fed(inputs: Reals, exact: ExactLayer, p: KelleParameters) -> tuple[Reals, Reals, Reals]:
    """Return up, products and output of the feed-forward block for normalised states."""
    up = exact(Operation.UP, inputs)
    if p.gated:
        products = exact_activation(exact(Operation.GATE, inputs), p.activation) * up
    else:
        products = exact_activation(up, p.activation)
    return up, products, exact(Operation.DOWN, products)


def exact_activation(values: Reals, function: Activation) -> Reals:
    """Return an activation in float64."""
    if function is Activation.RELU:
        return np.maximum(values, 0)
    return activation_functions.exact_activation(values, Function(function.value))


def text_states(exact: ExactLayer, states: Reals, p: KelleParameters) -> tuple[Reals, Reals]:
    """Return the states of a text after the attention and after the layer, in float64.

    Each token attends to all tokens before it.
    """
    heads = _heads(exact, exact_norm(states, p), p)
    between = states + exact(Operation.OUTPUT, _text_attention(heads, p))
    return between, between + _fed(exact_norm(between, p), exact, p)[-1]


def _text_attention(heads: tuple[Reals, Reals, Reals], p: KelleParameters) -> Reals:
    """Return the contexts of causal attention to all tokens, [tokens, width]."""
    queries, keys, values = heads
    contexts = []
    for query in range(p.heads):
        scores = queries[:, query] @ keys[:, query // p.group_size].T
        scores[np.triu_indices_from(scores, k=1)] = -np.inf
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        contexts.append(
            powers / powers.sum(axis=1, keepdims=True) @ values[:, query // p.group_size]
        )
    return np.concatenate(contexts, axis=1)


def _steps(
    exact: ExactLayer, states: Reals, inputs: Reals, p: KelleParameters
) -> dict[Operation, float]:
    """Return the quantisation step of each operation's results, from a text with full attention."""
    heads = _heads(exact, inputs, p)
    state = states + exact(Operation.OUTPUT, _text_attention(heads, p))
    up, products, down = _fed(exact_norm(state, p), exact, p)
    # A rotated channel can be larger than both channels of its pair before the rotation.
    query, key, value = (
        room * float(np.abs(part).max()) / LIMIT
        for room, part in zip((1.5, 1.5, 1.0), heads, strict=True)
    )
    inner, outer = (
        MARGIN * max(float(np.abs(part[1:]).max()) for part in parts) / LIMIT
        for parts in ((up, products), (states, state, state + down))
    )
    return {
        Operation.QUERY: query,
        Operation.KEY: key,
        Operation.VALUE: value,
        # The contexts of heads are bounded by their values.
        Operation.ATTEND: value,
        Operation.OUTPUT: outer,
        # Inputs and outputs of a curved activation have the format of its table.
        Operation.UP: inner if p.scaled_products else NORM_STEP,
        Operation.GATE: NORM_STEP,
        Operation.DOWN: outer,
    }
