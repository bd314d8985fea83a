"""Effect of the newest token in FP16 on SmolLM2's own tensors, against float64."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm.trace import Trace
from golden.nonlinear.rotary_embedding import paired
from golden.p3llm.npu.newest_score import Newest
from golden.p3llm.p3llm import Cache, attention
from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import LAYERS, TOKENS, real_cache, real_trace

Reals = NDArray[np.float64]
PARAMETERS = P3llmParameters()
PROMPT = 600
STEPS = range(PROMPT, TOKENS)


def attended(q: Reals, k: Reals, v: Reals) -> tuple[Reals, Reals]:
    """Return the heads' outputs and the last token's probabilities, by the equation.

    Queries [heads, size]; keys and values [heads, tokens, size], each head's own.
    """
    scores = np.einsum("hd,htd->ht", q, k) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return np.einsum("ht,htd->hd", shares, v), shares[:, -1]


def stored(cache: Cache) -> tuple[Reals, Reals]:
    """Return the dequantised keys and values of a cache, shape (heads, tokens, size)."""
    parts = []
    for name in ("key", "value"):
        numbers = getattr(cache, f"{name}s").astype(np.float64)
        zeros, scales = (getattr(cache, f"{name}_{part}") for part in ("zeros", "scales"))
        numbers = numbers - zeros[..., np.newaxis]
        parts.append(numbers * scales.view(np.float16).astype(np.float64)[..., np.newaxis])
    keys, vectors = parts
    return keys * cache.factors.view(np.float16).astype(np.float64), vectors


def halves(numbers: NDArray[np.uint16]) -> Reals:
    return numbers.view(np.float16).astype(np.float64)


def far(found: Reals, wanted: Reals) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return real_trace()


def outputs_of(trace: Trace, layer: int) -> dict[str, Reals]:
    """Return the heads' outputs in all steps [steps, heads, size], and the own probabilities.

    By the model with the newest token in FP16 (`residual`) and with its codes (`at once`); in
    float64 from the same numbers (`scheme`, `codes`), and from keys and values that are not
    quantised (`exact`, of which the probabilities are).
    """
    p = PARAMETERS
    heads = [trace.attention_trace(layer, head) for head in range(trace.heads)]
    queries = np.stack([codes(paired(head.q)) for head in heads])
    keys = np.stack([codes(paired(head.k)) for head in heads[:: p.group_size]])
    vectors = np.stack([codes(head.v) for head in heads[:: p.group_size]])
    cache = real_cache(trace, layer, PROMPT, p)
    found: dict[str, list[Reals]] = {}
    for step in STEPS:
        newest = Newest(keys[:, step], vectors[:, step])
        cache = cache.appended(newest.keys, newest.values)
        query = queries[:, step]
        quantised = [np.repeat(part, p.group_size, axis=0) for part in stored(cache)]
        mixed = [part.copy() for part in quantised]
        for part, own in zip(mixed, (newest.keys, newest.values), strict=True):
            part[:, -1] = halves(np.repeat(own, p.group_size, axis=0))
        exact = [
            halves(np.repeat(part[:, : step + 1], p.group_size, axis=0)) for part in (keys, vectors)
        ]
        outputs = {
            "at once": attention(query, cache, None, replace(p, residual=False)),
            "residual": attention(query, cache, newest, replace(p, residual=True)),
            "scheme": attended(halves(query), *mixed)[0],
            "codes": attended(halves(query), *quantised)[0],
        }
        outputs["exact"], outputs["share"] = attended(halves(query), *exact)
        for name, output in outputs.items():
            found.setdefault(name, []).append(np.asarray(output, np.float64))
    return {name: np.stack(part) for name, part in found.items()}


@pytest.mark.parametrize(
    ("layer", "own", "largest", "residual", "at_once"),
    [
        (0, 0.024, 0.359, 0.077, 0.079),
        (14, 0.033, 0.280, 0.180, 0.186),
        (29, 0.179, 0.892, 0.082, 0.108),
    ],
)
def test_a_newest_token_in_fp16_is_nearer_to_the_model(
    trace: Trace, layer: int, own: float, largest: float, residual: float, at_once: float
) -> None:
    """Forty steps, all heads: the page's table, and the authors' scheme in float64."""
    assert layer in LAYERS
    found = outputs_of(trace, layer)
    # Each equals float64 of the same numbers, except for 8-bit queries and probabilities.
    assert far(found["residual"], found["scheme"]) < 0.055
    assert far(found["at once"], found["codes"]) < 0.055
    assert far(found["residual"], found["scheme"]) < 0.8 * far(found["residual"], found["codes"])
    assert far(found["at once"], found["codes"]) < 0.8 * far(found["at once"], found["scheme"])
    assert found["share"].mean() == pytest.approx(own, abs=0.0006)
    assert found["share"].max() == pytest.approx(largest, abs=0.0006)
    assert far(found["residual"], found["exact"]) == pytest.approx(residual, abs=0.0006)
    assert far(found["at once"], found["exact"]) == pytest.approx(at_once, abs=0.0006)
