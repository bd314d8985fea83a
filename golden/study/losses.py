"""Losses of a model over texts for several policies, and the comparison of two policies."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from golden.policies.protocol import CachePolicy
from golden.study.attention import Observer, ReplayedAttention, attending
from golden.study.retention import FlipRates, Retention

LOGITS = 128
"""Maximum number of tokens whose logits are in memory."""
SIGNIFICANT = 2.0
"""Minimum number of standard errors of a significant difference."""


def measure_losses(
    model: Any,
    windows: np.ndarray,
    policies: Sequence[CachePolicy],
    *,
    rates: Sequence[FlipRates] | None = None,
    seed: int = 1,
    observer: Observer | None = None,
    done: Callable[[], None] | None = None,
) -> np.ndarray:
    """Return the model's loss at each predicted token under each policy.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    windows : numpy.ndarray
        Token numbers [windows, tokens].
    policies : Sequence[CachePolicy]
        Policies.
    rates : Sequence[FlipRates], optional
        Bit errors, one for each policy.
    seed : int
        Seed of the first window's bit errors; each later window uses the next number.
    observer, done : Callable, optional
        As in `ReplayedAttention`; `done` is called once per layer and window.

    Returns
    -------
    numpy.ndarray
        Negative log-likelihoods in nats, float64 [policies, windows, tokens - 1].
    """
    losses = np.empty((len(policies), len(windows), windows.shape[1] - 1))
    with torch.inference_mode():
        for number, window in enumerate(windows):
            text = torch.tensor(window, dtype=torch.long)
            retention = Retention(rates, seed=seed + number) if rates else None
            attention = ReplayedAttention(
                policies, retention=retention, observer=observer, done=done
            )
            with attending(model, attention):
                states = model.model(
                    input_ids=text.expand(len(policies), -1), use_cache=False
                ).last_hidden_state
            for lane in range(len(policies)):
                losses[lane, number] = token_losses(model, states[lane], text)
    return losses


def token_losses(model: Any, states: torch.Tensor, text: torch.Tensor) -> np.ndarray:
    """Return the negative log-likelihood of each token of a text except the first, in nats.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    states : torch.Tensor
        [tokens, hidden_size], the last hidden states of the text.
    text : torch.Tensor
        int64 [tokens].
    """
    losses = np.empty(len(text) - 1)
    for first in range(0, len(losses), LOGITS):
        here = slice(first, min(first + LOGITS, len(losses)))
        logits = model.lm_head(states[here]).double()
        expected = text[here.start + 1 : here.stop + 1]
        lost = torch.nn.functional.cross_entropy(logits, expected, reduction="none")
        losses[here] = lost.numpy()
    return losses


def perplexity_of(losses: np.ndarray) -> float:
    """Return the exponential of the mean loss."""
    return math.exp(losses.mean())


def ordering(better: np.ndarray, worse: np.ndarray) -> str:
    """Return whether `better` has lower losses than `worse` over the same tokens.

    Returns
    -------
    str
        ``"yes"``, ``"no"``, or ``"not measurable"`` if the mean of the paired differences is within
        two of its standard errors.
    """
    difference = (worse - better).ravel()
    error = difference.std() / math.sqrt(difference.size)
    if abs(difference.mean()) <= SIGNIFICANT * error:
        return "not measurable"
    return "yes" if difference.mean() > 0 else "no"
