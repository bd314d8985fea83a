"""Figure 8: error of quantised keys with smoothing factors of another text and of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.llm import text_named
from golden.llm.model import load_tokens
from golden.p3llm.scheme import NAME, QuantisedAttention, Scheme, smoothing_factors
from golden.p3llm.tensor_formats import asymmetric
from golden.study.outcome import Claim, Plot, Table
from golden.study.p3llm_passes import window_losses
from golden.study.subject import Progress

TEXTS = ("news", "prose")
TOKENS = 1024
SMOOTHINGS = ("none", "factors of the other text", "factors of its own")


@dataclass(frozen=True, kw_only=True)
class KeyErrors:
    """Mean error of quantised keys over their mean magnitude, layer by layer.

    Parameters
    ----------
    errors : dict[tuple[str, str], list[float]]
        Errors per layer, by text and smoothing.
    """

    errors: dict[tuple[str, str], list[float]]

    def means(self) -> dict[str, float]:
        """Return the mean over layers by text and smoothing."""
        return {
            f"{text}, {smoothing}": float(np.mean(x))
            for (text, smoothing), x in self.errors.items()
        }


class Watching(QuantisedAttention):
    """Unquantised attention that stores every layer's keys after the rotary embedding, and values.

    Members
    -------
    keys, values : list[Tensor]
        Keys and values of each layer [kv_heads, tokens, head_size].
    """

    def __init__(self) -> None:
        super().__init__(Scheme())
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any
    ) -> Any:
        """Store keys and values; attend."""
        self.keys.append(key[0])
        self.values.append(value[0])
        return super().__call__(module, query, key, value, *rest, **named)


@contextmanager
def watched(model: Any) -> Iterator[Watching]:
    """Store keys and values of the texts that a model reads inside the context."""
    from transformers import AttentionInterface

    before, watching = model.config._attn_implementation, Watching()
    AttentionInterface.register(NAME, watching)
    model.config._attn_implementation = NAME
    try:
        yield watching
    finally:
        model.config._attn_implementation = before


def key_errors(
    model: Any, progress: Progress, texts: dict[str, np.ndarray] | None = None
) -> KeyErrors:
    """Return the errors for two texts, each of which is the calibration text of the other."""
    if texts is None:
        texts = {name: load_tokens(text_named(name))[:TOKENS] for name in TEXTS}
    done = progress("keys of two texts", len(texts))
    keys = {}
    for name, tokens in texts.items():
        with watched(model) as watching:
            window_losses(model, tokens)
        keys[name] = watching.keys
        done()
    errors: dict[tuple[str, str], list[float]] = {}
    first, second = texts
    for text, other in ((first, second), (second, first)):
        for smoothing in SMOOTHINGS:
            errors[text, smoothing] = [
                _error(own, _factors(smoothing, own, others))
                for own, others in zip(keys[text], keys[other], strict=True)
            ]
    return KeyErrors(errors=errors)


def _factors(smoothing: str, own: Tensor, other: Tensor) -> Tensor:
    if smoothing == SMOOTHINGS[0]:
        return torch.ones_like(own[:, :1])
    return smoothing_factors(own if smoothing == SMOOTHINGS[2] else other)


def _error(keys: Tensor, factors: Tensor) -> float:
    codes, scales = asymmetric(keys / factors)
    return float((codes * scales * factors - keys).abs().mean() / keys.abs().mean())


def table(errors: KeyErrors) -> Table:
    """Return the means over layers."""
    texts = list(dict.fromkeys(text for text, _ in errors.errors))
    means = errors.means()
    return Table(
        title="Error of quantised keys",
        columns=("text", *SMOOTHINGS),
        rows=[
            (text, *(f"{means[f'{text}, {smoothing}']:.4f}" for smoothing in SMOOTHINGS))
            for text in texts
        ],
        note="Mean absolute error over mean magnitude, mean over layers; keys after RoPE.",
    )


def claims(errors: KeyErrors) -> list[Claim]:
    """Return whether each layer has its lowest error with factors of its own text."""
    found = []
    for text in dict.fromkeys(text for text, _ in errors.errors):
        fixed, own = (np.array(errors.errors[text, smoothing]) for smoothing in SMOOTHINGS[1:])
        layers = int((own < fixed).sum())
        found.append(
            Claim(
                what=f"keys of {text} have the lowest error with factors of their own text",
                paper="lowest error in all layers (Figure 8)",
                ours=f"{own.mean():.4f} against {fixed.mean():.4f}; {layers} of {len(own)} layers",
                holds="yes" if layers == len(own) else "no",
            )
        )
    return found


def plot(errors: KeyErrors) -> Plot:
    """Return the plot of the errors over layers."""
    return Plot(
        stem="keys",
        title="Error of quantised keys",
        x="layer",
        y="error over magnitude",
        curves={
            f"{text}, {smoothing}": (range(len(values)), values)
            for (text, smoothing), values in errors.errors.items()
        },
    )
