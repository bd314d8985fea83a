"""Kelle's whole language model: a prefill of one token, then all layers, the norm and the LM head.

The hidden state of a text's first token is hundreds of times larger than all others after a few
layers, and later tokens use only its keys and values. Software computes these in float64, as every
prefill. All further tokens are decoded, including those of the prompt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.int_symmetric import quantise
from golden.kelle.decoder_layer import (
    LIMIT,
    MARGIN,
    NORM_STEP,
    DecoderLayer,
    ExactLayer,
    Projection,
    exact_norm,
    integers,
    matrices,
    quantised_layer,
    text_states,
)
from golden.kelle.edram.retention_times import Retention
from golden.kelle.eviction.prefill import Prefill, prefill
from golden.kelle.kelle import Integers, KelleModel, Step, normalised
from golden.kelle.lost_bits import Entry, LostBits
from golden.kelle.low_bits import lost, narrowed, turned, turned_matrices
from golden.llm.language_model import LanguageModel
from golden.llm.layers import Reals, exact_layer, padded, rms_norm, rotary_angles
from golden.nonlinear.row_norm import finest_step
from hdl.errors import UserError
from hdl.kelle.instructions import PROJECTIONS, Operation
from hdl.kelle.parameters import KelleParameters
from hdl.model_shape import NORM_EPSILON
from hdl.parameters import require

TEXT = ("states", "quantised_states", "inputs", "quantised")
"""Fields of a layer for the states of a text, which are empty in a whole model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerVocabulary:
    """The LM head, with the final norm's weights folded in.

    Members
    -------
    matrix : numpy.ndarray
        int8 [width, tokens], of `weight_bits` bits, with one step for all tokens, so that sums are
        comparable.
    epsilon : int
        Epsilon of the final norm, as in `DecoderLayer`.
    step : float
        Logit per unit of a sum.
    """

    matrix: NDArray[np.int8]
    epsilon: int
    step: float

    def filled(self, size: int) -> NDArray[np.int8]:
        """Return the matrix, padded to a multiple of `size` tokens.

        The padding repeats the column of token 0: its sum is equal, and ties resolve to token 0.
        """
        missing = -self.matrix.shape[1] % size
        return np.concatenate([self.matrix, np.repeat(self.matrix[:, :1], missing, 1)], axis=1)


@dataclass(frozen=True, eq=False)
class IntegerModel:
    """A language model in integers.

    Members
    -------
    layers : list[DecoderLayer]
        Layers, without the states of a text.
    vocabulary : IntegerVocabulary
        LM head.
    step : float
        Quantisation step of hidden states in all layers.
    """

    layers: list[DecoderLayer]
    vocabulary: IntegerVocabulary
    step: float

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers by name, for a file."""
        found: dict[str, NDArray[Any]] = {
            "vocabulary": self.vocabulary.matrix,
            "units": np.array([self.step, self.vocabulary.step]),
        }
        for number, layer in enumerate(self.layers):
            for which, own in layer.projections.items():
                name = f"{number} {which.name}"
                found[name] = own.weights
                found[f"{name} scales"] = np.stack([own.scale, own.shift])
            found[f"{number} pairs"] = np.array([layer.score, layer.attend])
            found[f"{number} epsilon"] = np.array(layer.epsilon)
        return found

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> "IntegerModel":
        """Return the model with the given arrays, as `arrays` returns them."""
        none: Any = np.zeros((0, 0))
        no_text: dict[str, Any] = dict.fromkeys(TEXT, none)
        layers = []
        while f"{len(layers)} epsilon" in arrays:
            number = len(layers)
            pairs = [(int(scale), int(shift)) for scale, shift in arrays[f"{number} pairs"]]
            layers.append(
                DecoderLayer(
                    **no_text,
                    projections={
                        which: Projection(
                            none,
                            arrays[f"{number} {which.name}"],
                            *arrays[f"{number} {which.name} scales"],
                        )
                        for which in PROJECTIONS
                    },
                    score=pairs[0],
                    attend=pairs[1],
                    steps={},
                    epsilon=int(arrays[f"{number} epsilon"]),
                )
            )
        step, unit = map(float, arrays["units"])
        vocabulary = IntegerVocabulary(
            matrix=arrays["vocabulary"], epsilon=layers[-1].epsilon, step=unit
        )
        return cls(layers, vocabulary, step)

    def embedded(self, state: NDArray[np.floating], p: KelleParameters) -> Integers:
        """Return the quantised input of the first layer for a token's embedding."""
        return integers(turned(state.astype(np.float64), p), self.step)


def integer_model(
    model: LanguageModel,
    tokens: Sequence[int],
    p: KelleParameters,
    report: Callable[[int], None] = lambda layer: None,
) -> IntegerModel:
    """Quantise a whole model to integers, with steps from a text that it processes in float64.

    Raises
    ------
    UserError
        If a normalised hidden state does not fit its format.
    """

    def exact(number: int) -> ExactLayer:
        own = matrices(padded(model.layer(number), p.intermediate_size), p)
        return ExactLayer(turned_matrices(own, p))

    states = [turned(model.embedding[list(tokens)].astype(np.float64), p)]
    inner = []
    for number in range(model.shape.layers):
        report(number)
        between, after = text_states(exact(number), states[-1], p)
        inner.append(between)
        states.append(after)
    normalised = max(float(np.abs(exact_norm(part, p)).max()) for part in [*states, *inner])
    if normalised > LIMIT * NORM_STEP:
        raise UserError(
            "the normalised hidden states of a model for Kelle must be at most "
            f"{LIMIT * NORM_STEP:.2f}, not {normalised:.2f}"
        )
    # The first token is a prefill. The step is a power of two: the residual sums are exact.
    largest = MARGIN * max(float(np.abs(part[1:]).max()) for part in [*states, *inner])
    finest = finest_step(p.hidden_size, NORM_EPSILON)
    unit = 2.0 ** int(np.ceil(np.log2(max(largest / LIMIT, finest))))
    layers = []
    for number in range(model.shape.layers):
        report(number)
        layers.append(_without_text(quantised_layer(exact(number), states[number], p, unit)))
    projection = turned(model.projection().T, p).T
    matrix, step = quantise(projection, bits=p.weight_bits, axis=None)
    vocabulary = IntegerVocabulary(
        matrix=matrix,
        epsilon=layers[-1].epsilon,
        step=NORM_STEP * (1 << lost(Operation.VOCABULARY, p)) * float(step.reshape(-1)[0]),
    )
    return IntegerModel(layers, vocabulary, unit)


def _without_text(layer: DecoderLayer) -> DecoderLayer:
    """Return a layer without its text and its exact matrices, to save memory."""
    none: Any = np.zeros((0, 0))
    projections = {
        which: Projection(none, own.weights.astype(np.int8), own.scale, own.shift)
        for which, own in layer.projections.items()
    }
    no_text: dict[str, Any] = dict.fromkeys(TEXT, none)
    return replace(layer, projections=projections, steps={}, **no_text)


def first_states(model: LanguageModel, token: int) -> Reals:
    """Return a first token's input of each layer and output of the last, [layers + 1, width]."""
    s = model.shape
    angle = rotary_angles(np.array(0), s.head_size, s.rope_base)
    none = np.zeros((s.kv_heads, 0, s.head_size))
    states = [model.embedding[token].astype(np.float64)]
    for number in range(s.layers):
        states.append(
            exact_layer(
                model.layer(number), states[-1], (np.cos(angle), np.sin(angle)), (none, none)
            )
        )
    return np.stack(states)


@dataclass(frozen=True, eq=False)
class TokenResult:
    """Results of a decoded token.

    Members
    -------
    states : numpy.ndarray
        Output hidden state of each layer, [layers, width].
    steps : list[Step]
        Results of each layer.
    sums : numpy.ndarray or None
        LM head's sum of each token of the vocabulary, if computed.
    changed : list[list[Entry]]
        By layer, the entries of the eDRAM that lost bits after the step.
    flips : int
        Bits that these entries lost.
    """

    states: Integers
    steps: list[Step]
    sums: Integers | None
    changed: list[list[Entry]]
    flips: int

    @property
    def token(self) -> int | None:
        """Argmax of the sums; ties resolve to the lowest token."""
        return None if self.sums is None else int(self.sums.argmax())


@dataclass(eq=False)
class WholeModel:
    """All layers with their caches, and the LM head.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.
    model : IntegerModel
        Weights.
    retention : Retention, optional
        Bits that the eDRAM loses; none if not given.

    Members
    -------
    layers : list[KelleModel]
        Model of each layer, with its cache.
    """

    parameters: KelleParameters
    model: IntegerModel
    retention: Retention | None = None
    layers: list[KelleModel] = field(init=False)

    def begin(self, states: Reals) -> list[Prefill]:
        """Clear all caches and prefill the first token, with states from `first_states`."""
        p = self.parameters
        self.layers, self._inputs = [], []
        self._losses: list[LostBits] = []
        prefills = []
        for number, layer in enumerate(self.model.layers):
            quantised = integers(rms_norm(turned(states[number : number + 1], p)), NORM_STEP)
            # The first sequence has the text.
            own = KelleModel(p, replace(layer, quantised=quantised), number * p.batch)
            prefills.append(prefill(own, 1))
            if self.retention:
                self._losses.append(LostBits(self.retention, own))
                self._losses[-1].after_prefill(prefills[-1].score_updates)
            self.layers.append(own)
            self._inputs.append({0: quantised[0]})
        return prefills

    def step(self, position: int, state: Integers, *, predict: bool = True) -> TokenResult:
        """Decode a token with its embedded state through all layers."""
        return self.block(position, state[np.newaxis], predict=predict)[0]

    def block(self, first: int, states: Integers, *, predict: bool = True) -> list[TokenResult]:
        """Decode consecutive tokens with their embedded states [tokens, width] through all layers.

        The LM head is computed for the last token.

        Raises
        ------
        ValueError
            If the eDRAM loses bits, which it does after each token, and there are several.
        """
        require(
            not self._losses or len(states) == 1,
            "a block must have one token if the eDRAM loses bits",
            len(states),
        )
        blocks: list[list[Step]] = []
        changed = []
        for number, layer in enumerate(self.layers):
            inputs = self._inputs[number]
            steps = layer.block(first, states)
            inputs |= {first + place: step.normalised for place, step in enumerate(steps)}
            for step in steps:
                if step.store:
                    layer.inputs[step.store[1]] = inputs[step.store[0]]
            changed.append(self._losses[number].after(steps[0]) if self._losses else [])
            blocks.append(steps)
            states = np.stack([step.output for step in steps])
        sums = None
        if predict:
            sums = vocabulary_sums(self.model.vocabulary, states[-1], self.parameters)
        flips = sum(own.flips for own in self._losses)
        results = []
        for place in range(len(states)):
            own = [steps[place] for steps in blocks]
            last = place == len(states) - 1
            outputs = np.stack([step.output for step in own])
            results.append(TokenResult(outputs, own, sums if last else None, changed, flips))
        return results


def vocabulary_sums(vocabulary: IntegerVocabulary, state: Integers, p: KelleParameters) -> Integers:
    """Return the LM head's exact sum of each token of the vocabulary."""
    # Exact in float64: products of 16 and 8 bits, at most 2**16 per sum.
    row = narrowed(normalised(state, vocabulary.epsilon, p), Operation.VOCABULARY, p)
    return (row.astype(np.float64) @ vocabulary.matrix).astype(np.int64)
