"""Perplexity of a model over a text."""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def perplexity(model: "LlamaForCausalLM", tokens: np.ndarray, *, context: int = 1024) -> float:
    """Return the perplexity of a model over a text.

    The text is split into windows of `context` tokens without overlap. The model predicts each
    token of a window except the first from the preceding ones. Perplexity is the exponential of the
    mean negative log-likelihood, in float64, over all predicted tokens.

    Parameters
    ----------
    model
        Any causal language model, for instance one with quantised layers.
    tokens
        Token numbers, at least two.
    context
        Length of a window, at least 2.

    Raises
    ------
    ValueError
        A parameter violates its rule.
    """
    import torch

    if len(tokens) < 2:
        raise ValueError(f"tokens must contain at least 2 tokens, not {len(tokens)}")
    if context < 2:
        raise ValueError(f"context must be at least 2, not {context}")
    loss, predicted = 0.0, 0
    with torch.inference_mode():
        for window in torch.tensor(tokens, dtype=torch.long).split(context):
            if len(window) < 2:
                continue
            logits = model(input_ids=window[None], use_cache=False).logits[0, :-1]
            losses = torch.nn.functional.cross_entropy(logits, window[1:], reduction="none")
            loss += losses.double().sum().item()
            predicted += len(losses)
    return math.exp(loss / predicted)
