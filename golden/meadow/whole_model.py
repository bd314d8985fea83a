"""MEADOW's whole language model: all layers in INT8, the final norm, the vocabulary, the argmax."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.llm.layers import EPSILON, padded
from golden.meadow.attention_pipeline import exact_products
from golden.meadow.layer_quantisation import (
    STATE_STEP,
    IntegerLayer,
    Reals,
    integer_layer,
    normalised,
    real_layer,
    real_steps,
    smoothed,
    smoothing_ratio,
)
from golden.meadow.meadow import norm, run_layer
from golden.meadow.tile.requantisation import Integers, quantised
from golden.nonlinear.row_norm import quantise_weights
from hdl.meadow.parameters import NORM_DROP, MeadowParameters
from hdl.nonlinear.row_norm import OUTPUT


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerVocabulary:
    """The final norm and the projection on the vocabulary, in integers.

    Members
    -------
    matrix : numpy.ndarray
        INT8 [hidden_size, tokens].
    norm : numpy.ndarray
        The norm's raw weights.
    epsilon : int
        As of `IntegerLayer`.
    step : float
        A unit of a sum, as a logit.
    norm_bias : numpy.ndarray, optional
        The norm's bias in Q6.10, if it is a layer norm.
    bias : numpy.ndarray, optional
        Of each token, in steps of the sums, if linear layers have biases.
    """

    matrix: Integers
    norm: Integers
    epsilon: int
    step: float
    norm_bias: Integers | None = None
    bias: Integers | None = None

    def tiles(self, size: int) -> Integers:
        """Return the matrix in tiles (tiles, elements, size), the last filled up.

        What fills it repeats the first token's row: its sum is equal, and the first one is taken.
        """
        whole = self._filled(self.matrix, size)
        return whole.reshape(len(whole), -1, size).swapaxes(0, 1)

    def bias_tiles(self, size: int) -> Integers | None:
        """Return the biases in tiles (tiles, size), filled up in the same way."""
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
        What follows them.
    """

    layers: list[IntegerLayer]
    vocabulary: IntegerVocabulary


def integer_vocabulary(projection: Reals, states: Reals, p: MeadowParameters) -> IntegerVocabulary:
    """Bring the projection to integers.

    Parameters
    ----------
    projection : numpy.ndarray
        Shape (hidden_size, tokens), the final norm's weights folded in.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size] behind the last layer, of a text.
    p : MeadowParameters
        Dimensions.
    """
    inputs = normalised(states)
    ratio = smoothing_ratio(np.abs(inputs).max(0), np.abs(projection).max(1))
    matrix, weight_step = quantised(projection * ratio[:, np.newaxis])
    step = float(np.abs(inputs / ratio).max()) / 127 or 1.0
    unit = float(OUTPUT.resolution) * (1 << NORM_DROP)
    return IntegerVocabulary(
        matrix=matrix,
        norm=quantise_weights(unit / step / ratio, p.norm),
        epsilon=round(p.hidden_size * EPSILON / STATE_STEP**2),
        step=step * weight_step,
    )


def integer_model(
    model: LanguageModel,
    tokens: Sequence[int],
    p: MeadowParameters,
    report: Callable[[int], None] = lambda layer: None,
) -> IntegerModel:
    """Bring a whole model to integers, its steps found on a text that goes through it in float64.

    Parameters
    ----------
    model : LanguageModel
        The model.
    tokens : Sequence[int]
        The text.
    p : MeadowParameters
        Dimensions.
    report : Callable[[int], None]
        Is told each layer as it begins.
    """
    states = model.embedding[list(tokens)].astype(np.float64)
    none = np.zeros((p.kv_heads, 0, p.head_size))
    text = np.arange(len(states)), (none, none), p
    layers = []
    for number in range(model.shape.layers):
        report(number)
        plain = real_layer(padded(model.layer(number), p.feed_forward_size))
        found = real_steps(plain, states, *text)
        real = smoothed(plain, found, p)
        layers.append(integer_layer(real, real_steps(real, states, *text), p))
        states = found["states"]
    return IntegerModel(layers, integer_vocabulary(model.projection(), states, p))


def embedded(embedding: NDArray[np.floating], tokens: Sequence[int]) -> Integers:
    """Return the hidden states that tokens begin with."""
    return np.rint(embedding[list(tokens)].astype(np.float64) / STATE_STEP).astype(np.int64)


@dataclass(frozen=True, eq=False)
class BlockResult:
    """What a block of tokens leaves behind.

    Members
    -------
    states : numpy.ndarray
        Hidden states before the first layer and behind each, shape (layers + 1, tokens,
        hidden_size).
    sums : numpy.ndarray
        Of the last token, of each token of the vocabulary.
    """

    states: Integers
    sums: Integers

    @property
    def token(self) -> int:
        """The first token of the largest sum."""
        return int(self.sums.argmax())


@dataclass(eq=False)
class WholeModel:
    """All layers with their caches, and the vocabulary.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.
    model : IntegerModel
        Weights.

    Members
    -------
    caches : list[tuple]
        Of each layer keys and values, INT8 [kv_heads, cached, size].
    """

    parameters: MeadowParameters
    model: IntegerModel
    caches: list[tuple[Integers, Integers]] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with empty caches."""
        p = self.parameters
        none = np.zeros((p.kv_heads, 0, p.head_size), np.int64)
        self.caches = [(none, none) for _ in self.model.layers]

    def step(self, states: Integers) -> BlockResult:
        """Take a block's hidden states [tokens, hidden_size] through all layers."""
        behind = [states]
        for number, layer in enumerate(self.model.layers):
            result = run_layer(layer, behind[-1], self.caches[number], self.parameters)
            self.caches[number] = result.keys, result.values
            behind.append(result.states)
        sums = vocabulary_sums(self.model.vocabulary, behind[-1][-1:], self.parameters)
        return BlockResult(np.stack(behind), sums[0])


def vocabulary_sums(
    vocabulary: IntegerVocabulary, states: Integers, p: MeadowParameters
) -> Integers:
    """Return the sums of each token of the vocabulary, of rows of hidden states."""
    rows = norm(states, vocabulary.norm, vocabulary.epsilon, p, vocabulary.norm_bias)
    bias = 0 if vocabulary.bias is None else vocabulary.bias
    return exact_products(rows, vocabulary.matrix) + bias
