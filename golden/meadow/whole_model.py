"""MEADOW's whole language model: all layers in INT8, the final norm, the LM head, the argmax."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.llm.layers import padded
from golden.meadow.layer_quantisation import (
    HEADROOM,
    NORM_UNIT,
    IntegerLayer,
    RealLayer,
    Reals,
    epsilon_of,
    fitting_ratio,
    integer_layer,
    normalised,
    real_layer,
    real_steps,
    smoothed,
    smoothing_ratio,
)
from golden.meadow.meadow import norm, operands, run_layer
from golden.meadow.model_ranges import (
    largest_state,
    require_norm_range,
    require_norm_weights,
    state_step,
)
from golden.meadow.tile.hybrid_tile import exact_products, shifted_bias
from golden.meadow.tile.requantisation import Integers, quantised
from golden.nonlinear.row_norm import quantise_weights
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerVocabulary:
    """The final norm and the LM head in integers.

    Members
    -------
    matrix : numpy.ndarray
        INT8 [hidden_size, vocabulary_size].
    norm : numpy.ndarray
        Fixed-point weights of the norm as integers.
    epsilon : int
        As in `IntegerLayer`.
    step : float
        Logit of one step of the sums, with token exponents of the sums at `BASE_EXPONENT`.
    norm_bias : numpy.ndarray, optional
        Bias of a layer norm in Q6.10.
    bias : numpy.ndarray, optional
        Biases of the tokens in steps of the sums, if linear layers have biases.
    """

    matrix: Integers
    norm: Integers
    epsilon: int
    step: float
    norm_bias: Integers | None = None
    bias: Integers | None = None

    def tiles(self, size: int) -> Integers:
        """Return the matrix in tiles (tiles, elements, size), with a padded last tile.

        The padding repeats the first token's row. Its sum is equal, and the argmax resolves ties to
        the lowest index.
        """
        whole = self._filled(self.matrix, size)
        return whole.reshape(len(whole), -1, size).swapaxes(0, 1)

    def bias_tiles(self, size: int) -> Integers | None:
        """Return the biases in tiles (tiles, size), padded in the same way."""
        return None if self.bias is None else self._filled(self.bias, size).reshape(-1, size)

    def _filled(self, columns: Integers, size: int) -> Integers:
        missing = -columns.shape[-1] % size
        return np.concatenate([columns, np.repeat(columns[..., :1], missing, -1)], axis=-1)


@dataclass(frozen=True, eq=False)
class IntegerModel:
    """A language model in integers.

    Members
    -------
    layers : list[IntegerLayer]
        Its layers.
    vocabulary : IntegerVocabulary
        Final norm and LM head.
    step : float
        Step of the hidden states, in all layers.
    """

    layers: list[IntegerLayer]
    vocabulary: IntegerVocabulary
    step: float

    def embedded(self, rows: NDArray[np.floating]) -> Integers:
        """Return the hidden states of tokens before the first layer.

        Parameters
        ----------
        rows : numpy.ndarray
            Rows of the tokens in the embedding.
        """
        return np.rint(rows.astype(np.float64) / self.step).astype(np.int64)


def integer_vocabulary(
    projection: Reals, states: Reals, p: MeadowParameters, step: float
) -> IntegerVocabulary:
    """Quantise the LM head to integers.

    Parameters
    ----------
    projection : numpy.ndarray
        Shape (hidden_size, tokens), the final norm's weights folded in.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size] after the last layer, of a text.
    p : MeadowParameters
        Dimensions of model and accelerator.
    step : float
        Step of the hidden states.
    """
    inputs = normalised(states)
    largest = np.abs(inputs).max(0)
    ratio = smoothing_ratio(largest, np.abs(projection).max(1))
    ratio = fitting_ratio(ratio, largest, np.ones(len(ratio)), p)
    matrix, weight_step = quantised(projection * ratio[:, np.newaxis])
    input_step = float(np.abs(inputs / ratio).max()) / 127 or 1.0
    if p.token_exponents:
        input_step *= HEADROOM
    weights = NORM_UNIT / input_step / ratio
    require_norm_weights(weights, p)
    return IntegerVocabulary(
        matrix=matrix,
        norm=quantise_weights(weights, p.norm),
        epsilon=epsilon_of(p, step),
        step=input_step * weight_step,
    )


def integer_model(
    model: LanguageModel,
    tokens: Sequence[int],
    p: MeadowParameters,
    report: Callable[[int], None] = lambda layer: None,
) -> IntegerModel:
    """Quantise a whole model to integers, with steps from a text that it processes in float64.

    Parameters
    ----------
    model : LanguageModel
        The model.
    tokens : Sequence[int]
        The text.
    p : MeadowParameters
        Dimensions of model and accelerator.
    report : Callable[[int], None]
        Receives the number of each layer before it is quantised.

    Raises
    ------
    UserError
        If the weights of a norm do not fit their format.
    """
    none = np.zeros((p.kv_heads, 0, p.head_size))
    text = np.arange(len(tokens)), (none, none), p

    def plain(number: int) -> RealLayer:
        return real_layer(padded(model.layer(number), p.intermediate_size))

    states = [model.embedding[list(tokens)].astype(np.float64)]
    largest = 0.0
    for number in range(model.shape.layers):
        found = real_steps(plain(number), states[-1], *text)
        largest = max(largest, largest_state(found, states[-1]))
        states.append(found["states"])
    step = state_step(largest, p)
    layers = []
    for number in range(model.shape.layers):
        report(number)
        layer = plain(number)
        real = smoothed(layer, real_steps(layer, states[number], *text), p)
        layers.append(integer_layer(real, real_steps(real, states[number], *text), p, step))
        require_norm_range(real, layers[-1].steps, p)
    vocabulary = integer_vocabulary(model.projection(), states[-1], p, step)
    return IntegerModel(layers, vocabulary, step)


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Results of a block of tokens.

    Members
    -------
    states : numpy.ndarray
        Hidden states before the first layer and after each layer, shape (layers + 1, tokens,
        hidden_size).
    sums : numpy.ndarray
        Sums of the LM head for the last token, one per token of the vocabulary.
    """

    states: Integers
    sums: Integers

    @property
    def token(self) -> int:
        """The argmax of the sums; ties resolve to the lowest index."""
        return int(self.sums.argmax())


@dataclass(eq=False)
class WholeModel:
    """All layers with their caches, and the LM head.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of model and accelerator.
    model : IntegerModel
        Weights in integers.

    Members
    -------
    caches : list[tuple]
        Keys and values of each layer, INT8 [kv_heads, cached, size].
    """

    parameters: MeadowParameters
    model: IntegerModel
    caches: list[tuple[Integers, Integers]] = field(init=False)

    def __post_init__(self) -> None:
        """Create empty caches."""
        p = self.parameters
        none = np.zeros((p.kv_heads, 0, p.head_size), np.int64)
        self.caches = [(none, none) for _ in self.model.layers]

    def step(self, states: Integers) -> BlockResult:
        """Compute all layers for a block's hidden states [tokens, hidden_size]."""
        after = [states]
        for number, layer in enumerate(self.model.layers):
            result = run_layer(layer, after[-1], self.caches[number], self.parameters)
            self.caches[number] = result.keys, result.values
            after.append(result.states)
        sums = vocabulary_sums(self.model.vocabulary, after[-1][-1:], self.parameters)
        return BlockResult(np.stack(after), sums[0])


def vocabulary_sums(
    vocabulary: IntegerVocabulary, states: Integers, p: MeadowParameters
) -> Integers:
    """Return the sums of the LM head for rows of hidden states [rows, vocabulary_size]."""
    return _sums_and_exponents(vocabulary, states, p)[0]


def logits(vocabulary: IntegerVocabulary, states: Integers, p: MeadowParameters) -> Reals:
    """Return the real values of `vocabulary_sums`."""
    sums, exponents = _sums_and_exponents(vocabulary, states, p)
    return np.ldexp(sums * vocabulary.step, BASE_EXPONENT - exponents[:, np.newaxis])


def _sums_and_exponents(
    vocabulary: IntegerVocabulary, states: Integers, p: MeadowParameters
) -> tuple[Integers, Integers]:
    """Return `vocabulary_sums`, and the exponent of each row, which its sums contain."""
    found = norm(states, vocabulary.norm, vocabulary.epsilon, p, vocabulary.norm_bias)
    rows, exponents = operands(found, p)
    if exponents is None:
        exponents = np.full(len(rows), BASE_EXPONENT)
    sums = exact_products(rows, vocabulary.matrix)
    if vocabulary.bias is not None:
        sums = sums + shifted_bias(vocabulary.bias, exponents)
    return sums, exponents
