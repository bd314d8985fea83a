"""A decode step of whole layers in hardware formats, against SmolLM2 itself."""

from dataclasses import replace

import numpy as np
import pytest

from golden.llm.trace import Trace
from golden.p3llm.p3llm import Cache, Matrix, Weights, decode
from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import LAYERS, real_cache, real_trace, real_weights

PARAMETERS = P3llmParameters()
PROMPT = 600


@pytest.fixture(scope="module")
def trace() -> Trace:
    return real_trace()


def layer_weights(trace: Trace, layer: int) -> Weights:
    return real_weights(trace, layer, PARAMETERS)


def prompt_cache(trace: Trace, layer: int) -> Cache:
    return real_cache(trace, layer, PROMPT, PARAMETERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_near_the_model(trace: Trace, layer: int) -> None:
    """Four steps after 600 tokens: the deviation by four-bit weights and caches."""
    weights, cache = layer_weights(trace, layer), prompt_cache(trace, layer)
    states, expected = trace.hidden(layer)
    for position in range(PROMPT, PROMPT + 4):
        state, cache = decode(weights, cache, states[position], position, PARAMETERS)
        change = expected[position].astype(np.float64) - states[position]
        error = np.linalg.norm(state - expected[position]) / np.linalg.norm(change)
        assert error < 0.35
    assert cache.keys.shape == (3, PROMPT + 4, 64)
    again, _ = decode(weights, prompt_cache(trace, layer), states[PROMPT], PROMPT, PARAMETERS)
    assert again.dtype == np.float32


def dequantised(matrix: Matrix) -> np.ndarray:
    """Return the values of a matrix's bytes, by tables of this test."""
    outputs, groups = matrix.selects.shape
    low, high = matrix.columns & 15, matrix.columns >> 4
    nibble = np.stack([low, high], axis=-1).reshape(*matrix.columns.shape[:2], 16, 4)
    code = nibble.transpose(0, 2, 1, 3).reshape(-1, matrix.columns.shape[1] * 4)[:outputs]
    halves = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    table = np.array([[*halves, special, *(-x for x in halves[1:])] for special in (5, -5, 8, -8)])
    numbers = table[np.repeat(matrix.selects, code.shape[1] // groups, axis=1), code]
    rows = matrix.scales.view(np.float16).astype(np.float64)[:, np.newaxis]
    return numbers * np.repeat(matrix.steps * rows, code.shape[1] // groups, axis=1)


def in_float64(
    weights: Weights, cache: Cache, state: np.ndarray, position: int, p: P3llmParameters
) -> np.ndarray:
    """Return the layer's output from the same bytes in float64; `cache` has the token in it.

    With `pre_rope` all keys are rotated here.
    """
    angle = float(p.rope_base) ** (-2 * np.arange(p.head_size // 2) / p.head_size)

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x**2) + 1e-5) * weight

    def stored(part: np.ndarray, zeros: np.ndarray, scales: np.ndarray) -> np.ndarray:
        integers = part.astype(np.float64) - zeros[..., np.newaxis]
        return integers * scales.view(np.float16).astype(np.float64)[..., np.newaxis]

    here = norm(state, weights.norms[0])
    projected = (dequantised(weights.qkv) @ here).reshape(-1, p.head_size)
    queries = projected[2 * p.kv_heads :]

    def turned(heads: np.ndarray, place: int) -> np.ndarray:
        flat = heads.reshape(len(heads), -1, 2)
        whole = (flat[..., 0] + 1j * flat[..., 1]) * np.exp(1j * place * angle)
        return np.stack([whole.real, whole.imag], axis=-1).reshape(heads.shape)

    queries = turned(queries, position)
    factors = cache.factors.view(np.float16).astype(np.float64)
    keys = stored(cache.keys, cache.key_zeros, cache.key_scales) * factors
    if p.pre_rope:
        tokens = range(keys.shape[1])
        keys = np.stack([turned(keys[:, token], token) for token in tokens], axis=1)
    vectors = stored(cache.values, cache.value_zeros, cache.value_scales)
    heads = []
    for head, query in enumerate(queries):
        scores = keys[head // 3] @ query / np.sqrt(p.head_size)
        powers = np.exp(scores - scores.max())
        heads.append(powers / powers.sum() @ vectors[head // 3])
    state = state + dequantised(weights.output) @ np.concatenate(heads)
    here = norm(state, weights.norms[1])
    gate, up = np.split(dequantised(weights.gate_up) @ here, 2)
    return state + dequantised(weights.down) @ (gate / (1 + np.exp(-gate)) * up)


@pytest.mark.parametrize("option", [{}, {"pre_rope": True}])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_near_float64_of_the_same_bytes(
    trace: Trace, layer: int, option: dict[str, bool]
) -> None:
    """The deviation by 8-bit inputs and the NPU's functions, with an independent decoder."""
    p = replace(PARAMETERS, **option)
    weights, cache = layer_weights(trace, layer), real_cache(trace, layer, PROMPT, p)
    before = trace.hidden(layer)[0][PROMPT]
    state, cache = decode(weights, cache, before, PROMPT, p)
    exact = in_float64(weights, cache, before.astype(np.float64), PROMPT, p)
    error = np.linalg.norm(state - exact) / np.linalg.norm(exact - before)
    assert error < 0.08
