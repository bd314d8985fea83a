"""Figure 5: channels of keys and values with outliers, before and after RoPE, and smoothed."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.p3llm.scheme import smoothing_factors
from golden.study.outcome import Claim, Table
from golden.study.p3llm_keys import watched
from golden.study.p3llm_passes import window_losses
from golden.study.subject import Progress

OUTLIER = 4.0
"""A channel is an outlier if its largest magnitude exceeds this multiple of the head's median."""
CACHES = ("values", "keys before RoPE", "keys after RoPE", "smoothed keys")
Ratios = dict[str, np.ndarray]
"""By cache: each channel's largest magnitude over the median of its head's channels, shape
(layers * kv_heads, head_size)."""


def channel_ratios(model: Any, tokens: np.ndarray, progress: Progress) -> Ratios:
    """Return the ratios of a text's keys and values."""
    done = progress("channels of keys and values (Figure 5)", 1)
    before: list[Tensor] = []
    size = model.model.layers[0].self_attn.head_dim

    def unturned(_: Any, __: Any, made: Tensor) -> None:
        before.append(made[0].unflatten(-1, (-1, size)).transpose(0, 1))

    with ExitStack() as undo:
        for layer in model.model.layers:
            undo.callback(layer.self_attn.k_proj.register_forward_hook(unturned).remove)
        watching = undo.enter_context(watched(model))
        window_losses(model, tokens)
    done()
    smoothed = [keys / smoothing_factors(keys) for keys in watching.keys]
    caches = (watching.values, before, watching.keys, smoothed)
    return {name: relative(torch.cat(cache)) for name, cache in zip(CACHES, caches, strict=True)}


def relative(cache: Tensor) -> np.ndarray:
    """Return the channels' largest magnitudes [heads, size] over the median of their head's.

    Parameters
    ----------
    cache : Tensor
        Keys or values [heads, tokens, size].
    """
    largest = cache.abs().amax(-2).double().numpy()
    # `Tensor.median` returns the lower of two middle elements.
    return largest / np.median(largest, axis=-1, keepdims=True)


def heads_with_outliers(ratios: np.ndarray) -> float:
    """Return the share of heads with at least one outlier channel."""
    return float((ratios > OUTLIER).any(-1).mean())


def table(ratios: Ratios) -> Table:
    """Return Figure 5 as a table."""
    return Table(
        title="Channels with outliers (Figure 5)",
        columns=(
            "cache",
            "largest channel over the median, mean over heads",
            "largest of all heads",
            "heads with outlier channels",
            "outlier channels",
        ),
        rows=[
            (
                name,
                f"{own.max(-1).mean():.2f}",
                f"{own.max():.2f}",
                f"{heads_with_outliers(own):.1%}",
                f"{(own > OUTLIER).mean():.2%}",
            )
            for name, own in ratios.items()
        ],
        note=(
            "A channel's largest magnitude over the text, relative to the median of its head's "
            f"channels; an outlier channel exceeds {OUTLIER:g}. All layers and key/value heads."
        ),
    )


def claims(ratios: Ratios) -> list[Claim]:
    """Return whether each cache has the pattern of Figure 5, which shows no numbers."""

    def claim(what: str, paper: str, name: str, *, few: bool) -> Claim:
        part = heads_with_outliers(ratios[name])
        # "Distinct" outliers are those of most heads, "no pattern" that of few.
        holds = part <= 0.1 if few else part >= 0.5
        verdict = "yes" if holds else "partly" if 0.1 < part < 0.5 else "no"
        return Claim(what=what, paper=paper, ours=f"{part:.1%} of the heads", holds=verdict)

    distinct = "distinct outlier channels"
    return [
        claim("values have no outlier channels", "no outlier pattern", "values", few=True),
        claim("keys have outlier channels before RoPE", distinct, "keys before RoPE", few=False),
        claim(
            "keys have outlier channels after RoPE",
            f"{distinct} (Llama-3.1-8B), less structured (Llama-2-7B)",
            "keys after RoPE",
            few=False,
        ),
        claim("smoothed keys have none", "eliminated", "smoothed keys", few=True),
    ]
