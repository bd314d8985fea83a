"""P3-LLM's whole model in blocks: equal to the decode steps of single layers, and near float64."""

from dataclasses import replace

import numpy as np
import pytest

from golden.llm.language_model import LanguageModel
from golden.p3llm.p3llm import Cache, Halves, Matrix, decode
from golden.p3llm.whole_model import (
    CalibratedMatrix,
    FastMatrix,
    QuantisedModel,
    WeightMethod,
    WholeModel,
    quantised_model,
)
from hdl.catalog import entry_named
from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import drawn_cache, drawn_vocabulary, drawn_weights
from tests.generation.random_models import random_model

PRESETS = entry_named("p3llm").presets

P = PRESETS["tiny"]
SHAPE = {
    "hidden_size": 64,
    "heads": 6,
    "head_size": 16,
    "intermediate_size": 76,
    "vocabulary_size": 405,
    "rope_base": 100_000.0,
}
"""The dimensions of `tiny`, except those that are padded with zeros."""


def drawn_model(p: P3llmParameters, rng: np.random.Generator) -> QuantisedModel:
    factors: list[Halves] = [drawn_cache(p, 8, rng).factors for _ in range(p.layers)]
    layers = [drawn_weights(p, rng) for _ in range(p.layers)]
    return QuantisedModel(layers, factors, drawn_vocabulary(p, rng))


@pytest.mark.parametrize("option", [{}, {"pre_rope": True}, {"vocabulary_bits": 8}])
def test_blocks_are_equal_to_decode_steps(option: dict[str, int]) -> None:
    """Of three, one and nine tokens, by the model that reads nibbles of the banks' columns."""
    p, rng = replace(P, **option), np.random.default_rng(4)
    model = drawn_model(p, rng)
    states = rng.normal(size=(13, P.hidden_size)).astype(np.float32)
    # One element of the first token is hundreds of times as large as the others.
    states[0, 5] = 700
    caches = [Cache.empty(factors) for factors in model.factors]
    golden = WholeModel(p, model)
    position = 0
    for count in (3, 1, 9):
        block = golden.step(states[position : position + count])
        assert block.sums is not None
        for own in range(count):
            state = states[position]
            for number, weights in enumerate(model.layers):
                state, caches[number] = decode(weights, caches[number], state, position, p)
                assert np.array_equal(
                    state.view(np.uint32), block.states[number, own].view(np.uint32)
                )
            token, bits = model.vocabulary.predicted(state, p)
            assert block.sums[own].view(np.uint32)[token] == bits
            position += 1
        assert block.token == token
        for found, wanted in zip(golden.caches, caches, strict=True):
            for name, part in vars(wanted).items():
                assert np.array_equal(getattr(found, name), part), name


def in_float64(model: LanguageModel, tokens: list[int]) -> np.ndarray:
    """Return the logits of a text, straight from the equations."""
    s, base = model.shape, model.shape.rope_base

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight

    def turned(x: np.ndarray) -> np.ndarray:
        pairs = x.reshape(len(x), -1, s.head_size // 2, 2)
        angle = np.arange(len(x))[:, np.newaxis] * base ** (
            -2 * np.arange(s.head_size // 2) / s.head_size
        )
        whole = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)[:, np.newaxis]
        return np.stack([whole.real, whole.imag], -1).reshape(len(x), -1, s.head_size)

    states = model.embedding[tokens].astype(np.float64)
    later = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(s.layers):
        get = lambda name, layer=layer: model.tensor(layer, name).astype(np.float64)  # noqa: E731
        here = norm(states, get("input_norm"))
        queries, keys = turned(here @ get("query").T), turned(here @ get("key").T)
        vectors = (here @ get("value").T).reshape(len(tokens), -1, s.head_size)
        heads = []
        for head in range(s.heads):
            kv = head // (s.heads // s.kv_heads)
            scores = queries[:, head] @ keys[:, kv].T / np.sqrt(s.head_size) + later
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(powers / powers.sum(-1, keepdims=True) @ vectors[:, kv])
        states = states + np.concatenate(heads, -1) @ get("output").T
        here = norm(states, get("feed_forward_norm"))
        gate = here @ get("gate").T
        states = states + (gate / (1 + np.exp(-gate)) * (here @ get("up").T)) @ get("down").T
    return norm(states, model.tensor(None, "final_norm")) @ model.tensor(None, "projection").T


@pytest.mark.parametrize(("large", "option"), [(1, {}), (5, {}), (1, {"pre_rope": True})])
def test_a_quantised_model_is_near_the_model(large: float, option: dict[str, bool]) -> None:
    """A norm's weights that their format cannot hold are divided by a power of two."""
    model = random_model(**SHAPE)
    own = model.tensor

    def tensor(layer: int | None, name: str) -> np.ndarray:
        found = own(layer, name)
        return found * np.float32(large) if name == "final_norm" else found

    model = replace(model, tensor=tensor)
    tokens = np.random.default_rng(2).integers(0, 405, 24).tolist()
    p = replace(P, **option)
    quantised = quantised_model(model, tokens, p)
    sums = WholeModel(p, quantised).step(model.embedding[tokens]).sums
    assert sums is not None
    exact = in_float64(model, tokens)
    for own_sums, wanted in zip(sums.astype(np.float64), exact, strict=True):
        assert np.corrcoef(own_sums, wanted)[0, 1] > 0.95


def test_inputs_of_the_calibration_weight_the_errors() -> None:
    """The outputs for the calibration's inputs are nearer than with plain rounding."""
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(80, 64)).astype(np.float32)
    inputs = (rng.normal(size=(200, 64)) * rng.exponential(size=64) ** 2).astype(np.float16)
    exact = inputs.astype(np.float64) @ weights.T.astype(np.float64)
    errors = {}
    for method in WeightMethod:
        matrix = CalibratedMatrix(weights, P, method)
        product = matrix.product(inputs.view(np.uint16))
        assert np.array_equal(product, FastMatrix(matrix.quantised).product(inputs.view(np.uint16)))
        errors[method] = float(((product - exact) ** 2).mean())
    assert errors[WeightMethod.WEIGHTED] < 0.9 * errors[WeightMethod.PLAIN]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sum_of_two_weights_is_as_near_as_an_8_bit_integer(weighted: bool) -> None:
    """Nearer than symmetric INT8 with a scale per row, also in rows of different magnitudes."""
    rng = np.random.default_rng(11)
    weights = rng.normal(size=(405, 64)) * np.exp2(rng.uniform(-8, 2, (405, 1)))
    weights = weights.astype(np.float32)
    weights[7], weights[8, 1:] = 0, 0
    importance = rng.exponential(size=64) if weighted else None
    matrix = Matrix.quantised(
        weights, P.group_weights, elements=P.elements, passes=2, importance=importance
    )
    fast = FastMatrix(matrix, passes=2)
    half_units = fast.integers.T * fast.scales[:, np.newaxis].astype(np.float64)
    steps = np.abs(weights).max(axis=1, keepdims=True) / 127
    whole = np.rint(weights / np.where(steps == 0, 1, steps)) * steps
    importance = np.ones(64) if importance is None else importance

    def error(stored: np.ndarray) -> float:
        squares = importance * (stored - weights) ** 2
        sizes = importance * weights.astype(np.float64) ** 2
        used = sizes.sum(axis=1) > 0
        return float((squares.sum(axis=1)[used] / sizes.sum(axis=1)[used]).mean())

    assert not half_units[7].any()
    assert error(half_units / 2) < error(whole)


def test_later_inputs_do_not_change_a_calibrated_matrix() -> None:
    rng = np.random.default_rng(10)
    weights = rng.normal(size=(80, 64)).astype(np.float32)
    matrix = CalibratedMatrix(weights, P, WeightMethod.WEIGHTED)
    first, second = rng.normal(size=(2, 9, 64)).astype(np.float16).view(np.uint16)
    matrix.product(first)
    stored = matrix.quantised
    matrix.product(second)
    assert matrix.quantised is stored


def test_the_paper_s_rounding_is_available_for_a_whole_model() -> None:
    """Plain rounding does not read the calibration text; its LM head is that of the weights."""
    model = random_model(**SHAPE)
    rng = np.random.default_rng(6)
    texts = [rng.integers(0, 405, 12).tolist() for _ in range(2)]
    plain, weighted = (
        [quantised_model(model, text, P, method=method) for text in texts]
        for method in (WeightMethod.PLAIN, WeightMethod.WEIGHTED)
    )

    def same(pair: list[QuantisedModel]) -> bool:
        first, second = (one.layers[0].down.columns for one in pair)
        return bool(np.array_equal(first, second))

    assert same(plain) and not same(weighted)
    default = quantised_model(model, texts[0], P)
    wanted = weighted[0].arrays()
    assert all(np.array_equal(part, wanted[name]) for name, part in default.arrays().items())
