"""The lower bound of the intervals' tail: active positions against errors of probabilities.

``python -m golden.study.lad_tail`` measures `TAILS` on the first tokens of the news text, in
float64, and prints two tables: the sizes of J and the errors in three layers, and the perplexity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.llm import text_named
from golden.llm.model import GGUF_SHA256, load_model, load_tokens
from golden.study.attention import attending
from golden.study.lad_attention import STATISTICS, LadAttention, Scheme
from golden.study.lad_measured import Laboratory, Variant
from hdl.lad.exp_intervals import IntervalParameters
from hdl.paths import BUILD

INTERVALS = 12
TAILS = (14, 12, 10, 9, 8, 7)
LAYERS = (0, 14, 29)
LENGTHS = (640, 2048)
STEPS = 64
"""Last steps up to a length over which figures are averaged."""


@dataclass(frozen=True, eq=False)
class Captured:
    """Queries, divided by the root of the head size, and keys of a layer, in float64.

    Members
    -------
    query, key : Tensor [1, heads, tokens, size]
        The vectors; keys have one head per group.
    """

    query: Tensor
    key: Tensor


class Capture:
    """Exact attention inside a `transformers` model that stores the vectors of some layers."""

    def __init__(self) -> None:
        self.layers: dict[int, Captured] = {}

    def __call__(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Attend: query [1, heads, tokens, size]; key, value with fewer heads."""
        if module.layer_idx in LAYERS:
            self.layers[module.layer_idx] = Captured(query.double() * scaling, key.double())
        group = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(group, 1) for part in (key, value))
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling
        )
        return output.transpose(1, 2), None


def variant(tail: int) -> Scheme:
    """Return LAD's attention with exact scores and exact caches."""
    return Scheme(intervals=IntervalParameters(intervals=INTERVALS, tail=tail))


def active_shares(one: Captured, tail: int, lengths: Sequence[int] = LENGTHS) -> dict[int, float]:
    """Return |J| / n of a layer, mean over heads and the last steps up to each length."""
    counts: list[float] = []

    def observe(_layer: int, n: int, found: Tensor) -> None:
        counts.append(float(found[..., STATISTICS.index("active")].double().mean()) / n)

    tokens = one.key.shape[2]
    attention = LadAttention(variant(tail), capacity=tokens, observe=observe)
    attention(SimpleNamespace(layer_idx=0), one.query, one.key, one.key, None, scaling=1.0)
    return {n: float(np.mean(counts[n - STEPS : n])) for n in lengths}


def probability_errors(
    one: Captured, tail: int, lengths: Sequence[int] = LENGTHS
) -> dict[int, float]:
    """Return the sum of |dp| of a query over its positions, mean as in `active_shares`."""
    attention = LadAttention(variant(tail), capacity=one.key.shape[2])
    group = one.query.shape[1] // one.key.shape[1]
    found = {}
    for n in lengths:
        keys = one.key[:, :, :n].repeat_interleave(group, 1)
        scores = one.query[:, :, n - STEPS : n] @ keys.mT
        weights = attention.exponentials(scores, n - STEPS)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(n - STEPS + 1)
        exact = scores.masked_fill(later, -torch.inf).softmax(-1)
        error = weights / weights.sum(-1, keepdim=True) - exact
        found[n] = float(error.abs().sum(-1).mean())
    return found


def print_layers(captured: dict[int, Captured]) -> None:
    """Print a row per tail and length: |J| / n and sum of |dp| of each layer."""
    for tail in TAILS:
        shares = {layer: active_shares(one, tail) for layer, one in captured.items()}
        errors = {layer: probability_errors(one, tail) for layer, one in captured.items()}
        for n in LENGTHS:
            active = ", ".join(f"{shares[layer][n]:.3f}" for layer in captured)
            wrong = ", ".join(f"{errors[layer][n]:.4f}" for layer in captured)
            mean = np.mean([errors[layer][n] for layer in captured])
            print(f"-{tail}; {n}; {active}; {wrong}; {mean:.4f}", flush=True)


def print_losses(laboratory: Laboratory, tokens: np.ndarray) -> None:
    """Print a row per tail and length: perplexity, and the loss over the original's."""
    variants: dict[str, Variant] = {"original": None}
    for tail in TAILS:
        variants[f"-{tail}"] = variant(tail)
    for n in LENGTHS:
        original = laboratory.predictions("original", None, tokens[:n])
        for name, one in variants.items():
            measured = laboratory.predictions(name, one, tokens[:n])
            over = measured.losses - original.losses
            error = over.std(ddof=1) / len(over) ** 0.5
            other = np.mean(measured.choices != original.choices)
            perplexity = np.exp(measured.losses.mean())
            print(
                f"{name}; {n}; {perplexity:.3f}; {over.mean():+.5f} +- {error:.5f}; {other:.2%}",
                flush=True,
            )


def main() -> None:
    """Print both tables."""
    tokens = load_tokens(text_named("news"))[: max(LENGTHS)].astype(np.int64)
    model, capture = load_model(), Capture()
    with torch.inference_mode(), attending(model, capture):
        model.model(input_ids=torch.tensor(tokens)[None], use_cache=False)
    print(f"bound; n; |J| / n of layers {LAYERS}; sum of |dp| of each; mean")
    with torch.inference_mode():
        print_layers(capture.layers)
    print("bound; n; perplexity; loss over the original's, nats/token; other argmax")
    laboratory = Laboratory(
        model, BUILD / "study" / "lad", GGUF_SHA256, lambda _name, _steps: lambda: None
    )
    print_losses(laboratory, tokens)


if __name__ == "__main__":
    main()
