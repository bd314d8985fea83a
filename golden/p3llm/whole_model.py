"""Model of a whole language model on P3-LLM: all layers, the final norm, the LM head.

Tokens of a text do not depend on later ones, so a block of tokens is computed together, with the
results of single decode steps. Sums are integers below ``2**53``, which float64 represents exactly
in any order of additions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int4_asym
from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.float_values import codes, values
from golden.llm.language_model import LanguageModel
from golden.nonlinear.argmax import argmax
from golden.nonlinear.softmax import softmax
from golden.p3llm.activation_aware import activation_aware
from golden.p3llm.dram_layout import unpack_columns
from golden.p3llm.npu.query_key_score import query_key_score
from golden.p3llm.p3llm import (
    FRACTION,
    Cache,
    Halves,
    Matrix,
    Singles,
    Vocabulary,
    Weights,
    cached_keys,
    normed,
    rotated,
    silu,
    turned_keys,
)
from golden.p3llm.pim.operand_decoder import real
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from golden.p3llm.quantisers.key_smoothing import fused_queries, smoothing_factors
from golden.p3llm.quantisers.probability_quantiser import probability_quantiser
from golden.p3llm.quantisers.value_scaling import value_scaling
from hdl.arith.float_format import BINARY32
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode

Reals = NDArray[np.float64]
MATRICES = ("qkv", "output", "gate_up", "down")
LAYER_TENSORS = (
    "input_norm",
    "query",
    "key",
    "value",
    "output",
    "feed_forward_norm",
    "gate",
    "up",
    "down",
)
"""A layer's tensors in the language model."""


class Product(Protocol):
    """A matrix for blocks of tokens."""

    def product(self, states: Halves) -> Singles:
        """Return outputs [tokens, outputs] of FP16 vectors [tokens, inputs]."""
        ...


@dataclass(frozen=True, eq=False)
class QuantisedModel:
    """A language model in the formats of the banks.

    Members
    -------
    layers : list[Weights]
        Weights of the layers.
    factors : list[numpy.ndarray]
        Smoothing factors of each layer, FP16, shape (kv_heads, 1, head_size).
    vocabulary : Vocabulary
        Final norm and LM head.
    """

    layers: list[Weights]
    factors: list[Halves]
    vocabulary: Vocabulary

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for a file."""
        found: dict[str, NDArray[Any]] = {"final norm": self.vocabulary.norm}
        matrices = {"vocabulary": self.vocabulary.matrix}
        for number, (layer, factors) in enumerate(zip(self.layers, self.factors, strict=True)):
            found[f"{number} norms"] = np.stack(layer.norms)
            found[f"{number} factors"] = factors
            matrices |= {f"{number} {name}": getattr(layer, name) for name in MATRICES}
        for name, matrix in matrices.items():
            found |= {f"{name} {part}": own for part, own in vars(matrix).items()}
        return found

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> "QuantisedModel":
        """Return the model from its arrays."""

        def matrix(name: str) -> Matrix:
            parts = ("columns", "selects", "steps", "scales")
            return Matrix(**{part: arrays[f"{name} {part}"] for part in parts})

        layers, factors = [], []
        while f"{len(layers)} norms" in arrays:
            number = len(layers)
            first, second = arrays[f"{number} norms"]
            own = {name: matrix(f"{number} {name}") for name in MATRICES}
            layers.append(Weights(**own, norms=(first, second)))
            factors.append(arrays[f"{number} factors"])
        return cls(layers, factors, Vocabulary(arrays["final norm"], matrix("vocabulary")))


class WeightMethod(Enum):
    """How each group of weights chooses its scale and its special value.

    Members
    -------
    PLAIN : str
        The paper's: the scale of the largest weight, the special value with the smallest squared
        error.
    AWQ : str
        The authors' scripts': AWQ with the calibration text, then `PLAIN`; without scales for the
        LM head, as there.
    WEIGHTED : str
        Ours: the smallest error weighted with the mean square of the inputs, which the
        calibration text gives, over several clip ratios.
    """

    PLAIN = "plain"
    AWQ = "awq"
    WEIGHTED = "weighted"


def quantised_model(
    model: LanguageModel,
    tokens: Sequence[int],
    p: P3llmParameters,
    report: Callable[[int], None] = lambda layer: None,
    *,
    method: WeightMethod = WeightMethod.WEIGHTED,
) -> QuantisedModel:
    """Quantise a whole model, with smoothing factors of keys from a calibration text.

    Each matrix is quantised when the text's states reach it, so that its inputs are those of the
    quantised matrices upstream.
    """
    positions = np.arange(len(tokens))
    states = model.embedding[list(tokens)].astype(np.float32)
    layers, factors = [], []
    for number in range(model.shape.layers):
        report(number)
        own = _activation_aware(model, number, states, p) if method is WeightMethod.AWQ else model
        layer, matrices = _calibrated_layer(own, number, p, method)
        keys, vectors, queries = layer.projected(states, positions)
        factors.append(smoothing_factors(keys))
        cache = Cache.empty(factors[-1]).extended(keys, vectors)
        attended = layer.attended(queries, cache, positions)
        states = layer.fed_forward(states, attended)
        found = {name: matrix.quantised for name, matrix in matrices.items()}
        layers.append(Weights(**found, norms=layer.norms))
    report(model.shape.layers)
    norm, scale = _fitting_norm(model.tensor(None, "final_norm"), p)
    importance = _importance(rows_normed(states, norm, p), method)
    projection = model.tensor(None, "projection") * scale
    return QuantisedModel(layers, factors, Vocabulary.quantised(norm, projection, p, importance))


def _importance(inputs: Halves, method: WeightMethod) -> Reals | None:
    """Return the mean square of each of a matrix's inputs, FP16 [tokens, inputs]."""
    if method is not WeightMethod.WEIGHTED:
        return None
    squares: Reals = (values(inputs).astype(np.float64) ** 2).mean(axis=0)
    return squares


def _activation_aware(
    model: LanguageModel, number: int, states: Singles, p: P3llmParameters
) -> LanguageModel:
    """Return the model with AWQ applied to a layer, whose input states are given."""
    tensors = {name: model.tensor(number, name) for name in LAYER_TENSORS}
    found = activation_aware(tensors, states, model.shape, p.group_weights)
    return replace(model, tensor=lambda _, name: found[name])


def _fitting_norm(weight: Singles, p: P3llmParameters) -> tuple[Singles, np.float32]:
    """Return a norm's weights, divided by a power of two to fit in 16 bits, and this power."""
    room = 2.0 ** (15 - p.norm.weight_fraction)
    largest = float(np.abs(weight).max())
    scale = np.float32(1)
    while largest / scale >= room:
        scale *= np.float32(2)
    return weight / scale, scale


def _calibrated_layer(
    model: LanguageModel, number: int, p: P3llmParameters, method: WeightMethod
) -> tuple["FastLayer", dict[str, "CalibratedMatrix"]]:
    """Return a layer whose matrices are quantised at first use, and these matrices by name.

    The feed-forward layer is padded with zeros.
    """
    missing = p.intermediate_size - model.shape.intermediate_size
    norms = {}
    scales = {}
    for name in ("input_norm", "feed_forward_norm"):
        norms[name], scales[name] = _fitting_norm(model.tensor(number, name), p)

    def rows(name: str, norm: str) -> Singles:
        weight = model.tensor(number, name) * scales[norm]
        return np.pad(weight, ((0, missing if name in ("gate", "up") else 0), (0, 0)))

    def matrix(*parts: Singles) -> CalibratedMatrix:
        return CalibratedMatrix(np.concatenate(parts), p, method)

    matrices = {
        "qkv": matrix(*(rows(name, "input_norm") for name in ("key", "value", "query"))),
        "output": matrix(model.tensor(number, "output")),
        "gate_up": matrix(*(rows(name, "feed_forward_norm") for name in ("gate", "up"))),
        "down": matrix(np.pad(model.tensor(number, "down"), ((0, 0), (0, missing)))),
    }
    own = norms["input_norm"], norms["feed_forward_norm"]
    return FastLayer(matrices, own, p), matrices


class CalibratedMatrix:
    """A matrix that is quantised when the first inputs reach it.

    Parameters
    ----------
    weights : numpy.ndarray
        float32, shape (outputs, inputs).
    p : P3llmParameters
        Parameters of the system.
    method : WeightMethod
        How groups choose scale and special value.
    """

    def __init__(self, weights: Singles, p: P3llmParameters, method: WeightMethod) -> None:
        self._weights, self._p, self._method = weights, p, method
        self._quantised: Matrix | None = None

    @property
    def quantised(self) -> Matrix:
        """The stored weights."""
        assert self._quantised is not None, "no inputs have reached the matrix"
        return self._quantised

    def product(self, states: Halves) -> Singles:
        """Return outputs [tokens, outputs] of FP16 vectors [tokens, inputs]."""
        if self._quantised is None:
            p = self._p
            self._quantised = Matrix.quantised(
                self._weights,
                p.group_weights,
                elements=p.elements,
                importance=_importance(states, self._method),
            )
        return FastMatrix(self._quantised).product(states)


class FastMatrix:
    """A matrix as integers: half-units times 8-bit scales, shape (inputs, outputs).

    Parameters
    ----------
    matrix : Matrix
        Stored weights.
    passes : int
        Stored weights per weight.
    """

    def __init__(self, matrix: Matrix, passes: int = 1) -> None:
        outputs, groups = matrix.selects.shape
        terms = matrix.columns.shape[1] * 4
        stored = unpack_columns(matrix.columns, outputs=outputs, terms=terms)
        units = bitmod_fp4.decode(
            stored.reshape(outputs, groups, -1), matrix.selects[..., np.newaxis]
        )
        scaled = units.astype(np.int16) * matrix.steps[..., np.newaxis].astype(np.int16)
        # Both weights of a sum have the same input.
        whole = scaled.reshape(outputs, passes, terms // passes).sum(axis=1, dtype=np.int16)
        self.integers = np.ascontiguousarray(whole.T, np.float64)
        self.scales = values(matrix.scales).astype(np.float32)

    def product(self, states: Halves) -> Singles:
        """Return outputs [tokens, outputs] of FP16 vectors [tokens, inputs]."""
        inputs, scales = e4m3_quantiser(states)
        total = e4m3_integers(inputs) @ self.integers
        single: Singles = real(Mode.LINEAR, total).astype(np.float32)
        # Both scales have eleven digits: their product is exact in float32.
        return np.multiply(single, values(scales).astype(np.float32) * self.scales)


def e4m3_integers(inputs: NDArray[np.uint8]) -> Reals:
    """Return E4M3 codes as multiples of the smallest number."""
    significand, shift, _nan = fp8_e4m3.operand(inputs)
    return np.ldexp(significand.astype(np.float64), shift)


class FastLayer:
    """A layer for blocks of tokens.

    Parameters
    ----------
    matrices : Mapping[str, Product]
        Matrices by the names of `MATRICES`.
    norms : tuple[numpy.ndarray, numpy.ndarray]
        Weights of both norms.
    p : P3llmParameters
        Parameters of the system.
    """

    def __init__(
        self,
        matrices: Mapping[str, Product],
        norms: tuple[NDArray[np.floating], NDArray[np.floating]],
        p: P3llmParameters,
    ) -> None:
        self.p, self.norms = p, norms
        self.qkv, self.output, self.gate_up, self.down = (matrices[name] for name in MATRICES)

    @classmethod
    def of(cls, weights: Weights, p: P3llmParameters) -> "FastLayer":
        """Return the layer of stored weights."""
        matrices = {name: FastMatrix(getattr(weights, name)) for name in MATRICES}
        return cls(matrices, weights.norms, p)

    def projected(
        self, states: Singles, positions: NDArray[np.int64]
    ) -> tuple[Halves, Halves, Halves]:
        """Return keys to be quantised, values, rotated queries: FP16 [heads, tokens, size]."""
        p, tokens = self.p, len(states)
        here = rows_normed(states, self.norms[0], p)
        heads = self.qkv.product(here).reshape(tokens, -1, p.head_size).swapaxes(0, 1)
        keys, vectors, queries = np.split(heads, [p.kv_heads, 2 * p.kv_heads])

        def turned(some: Singles, by: Callable[..., Halves]) -> Halves:
            flat = some.reshape(-1, p.head_size)
            return by(flat, np.tile(positions, len(some)), p).reshape(some.shape)

        return turned(keys, cached_keys), codes(vectors), turned(queries, rotated)

    def attended(self, queries: Halves, cache: Cache, positions: NDArray[np.int64]) -> Halves:
        """Return the heads' outputs, FP16 [tokens, heads * size]; the cache has the tokens."""
        p, tokens = self.p, cache.keys.shape[1]
        filled = -(-tokens // p.lanes) * p.lanes
        # Each token attends to itself and to earlier ones; the padding of the last slice is masked.
        keep = np.arange(filled) <= positions[:, np.newaxis]
        cached = np.arange(tokens) <= positions[:, np.newaxis]
        turned = turned_keys(cache, p) if p.pre_rope else None
        outputs = []
        for head, query in enumerate(queries):
            kv = head // p.group_size
            if turned is not None:
                scores = query_key_score(query[:, np.newaxis], turned[kv], p)
            else:
                scores = self._integer_scores(query, cache, kv)
            shares = rows_shared(scores, keep, p)
            own = np.where(cached, cache.value_scales[kv], 0).astype(np.uint16)
            fused, largest = value_scaling(own, shares[:, :tokens])
            significand, shift = fp8_s0e4m4.operand(probability_quantiser(fused, p.probabilities))
            weights = np.ldexp(significand.astype(np.float64), shift)
            sums = weights @ _operands(cache.values[kv], cache.value_zeros[kv])
            single = real(Mode.PV, sums).astype(np.float32)
            outputs.append(single * values(largest).astype(np.float32))
        return codes(np.stack(outputs, axis=1).reshape(len(positions), -1))

    def _integer_scores(self, queries: Halves, cache: Cache, kv: int) -> Singles:
        """Return a head's scores of INT4 keys, float32 [queries, tokens]."""
        inputs, scales = e4m3_quantiser(fused_queries(queries, cache.factors[kv, 0]))
        sums = e4m3_integers(inputs) @ _operands(cache.keys[kv], cache.key_zeros[kv]).T
        return rows_scores(real(Mode.QK, sums), scales, cache.key_scales[kv], self.p)

    def fed_forward(self, states: Singles, attended: Halves) -> Singles:
        """Return the hidden states after the layer, float32 [tokens, width]."""
        states = states + self.output.product(attended)
        here = rows_normed(states, self.norms[1], self.p)
        gate, up = np.split(self.gate_up.product(here), 2, axis=1)
        return states + self.down.product(codes(silu(gate, self.p) * up))


def _operands(stored: NDArray[np.uint8], zeros: NDArray[np.uint8]) -> Reals:
    """Return the integers of the codes of tokens [tokens, size]."""
    return int4_asym.operand(stored, zeros[:, np.newaxis]).astype(np.float64)


def rows_normed(states: Singles, weight: NDArray[np.floating], p: P3llmParameters) -> Halves:
    """Return hidden states, each divided by its root mean square, weighted, in FP16."""
    return np.stack([normed(state, weight, p) for state in states])


def rows_scores(sums: Reals, scales: Halves, of_tokens: Halves, p: P3llmParameters) -> Singles:
    """Return rows of scores, float32; see `golden.p3llm.p3llm.integer_scores`."""
    constant = np.float32(np.log2(np.e) / np.sqrt(p.head_size))
    factors = values(scales).astype(np.float32) * constant
    beside = values(of_tokens).astype(np.float32) * factors
    return np.multiply(sums.astype(np.float32), beside, dtype=np.float32)


def rows_shared(scores: Singles, keep: NDArray[np.bool_], p: P3llmParameters) -> Halves:
    """Return probabilities of rows of scores, in FP16."""
    beyond = keep.shape[1] - scores.shape[1]
    raw = np.pad(float_to_fixed(scores, FRACTION), [(0, 0), (0, beyond)])
    shares = softmax(raw, keep, p.softmax)
    return codes(np.ldexp(shares.astype(np.float64), -16))


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Results of a block of tokens.

    Members
    -------
    states : numpy.ndarray
        Hidden states after each layer, float32 [layers, tokens, width].
    sums : numpy.ndarray or None
        Logits for each token, float32 [tokens, vocabulary], if requested.
    """

    states: Singles
    sums: Singles | None

    @property
    def token(self) -> int | None:
        """The argmax of the logits of the last token."""
        if self.sums is None:
            return None
        return argmax(BINARY32, self.sums[-1].view(np.uint32))[0]


@dataclass(eq=False)
class WholeModel:
    """All layers with their caches, and the LM head.

    Parameters
    ----------
    parameters : P3llmParameters
        Parameters of the system.
    model : QuantisedModel
        Weights of all layers and of the LM head.

    Members
    -------
    caches : list[Cache]
        Cache of each layer.
    """

    parameters: P3llmParameters
    model: QuantisedModel
    caches: list[Cache] = field(init=False)

    def __post_init__(self) -> None:
        """Convert matrices to integers; start with empty caches."""
        p = self.parameters
        self._layers = [FastLayer.of(layer, p) for layer in self.model.layers]
        self._projection = FastMatrix(self.model.vocabulary.matrix, p.vocabulary_passes)
        self.begin()

    def begin(self) -> None:
        """Clear all caches."""
        self.caches = [Cache.empty(factors) for factors in self.model.factors]

    def step(self, states: Singles, *, predict: bool = True) -> BlockResult:
        """Process the embedded states of the next tokens [tokens, width] in all layers."""
        first = self.caches[0].keys.shape[1]
        positions = first + np.arange(len(states))
        outputs = []
        for number, layer in enumerate(self._layers):
            keys, vectors, queries = layer.projected(states, positions)
            cache = self.caches[number] = self.caches[number].extended(keys, vectors)
            attended = layer.attended(queries, cache, positions)
            states = layer.fed_forward(states, attended)
            outputs.append(states)
        sums = None
        if predict:
            norm, p = self.model.vocabulary.norm, self.parameters
            sums = self._projection.product(rows_normed(states, norm, p))
            sums = sums[:, : p.vocabulary_size]
        return BlockResult(np.stack(outputs), sums)
