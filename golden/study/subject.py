"""The model and the text of a study, and the progress of its passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden.llm import text_named
from golden.llm.model import load_model, load_tokens
from golden.study.attention import Observer
from golden.study.losses import measure_losses, perplexity_of
from golden.study.policies import Policy
from golden.study.retention import FlipRates

CONTEXT = 1024
Progress = Callable[[str, int], Callable[[], None]]
"""Told of a pass and its number of steps; returns what is called at each step."""
Lanes = dict[str, Policy]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A model, and windows of text that it has to predict.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    windows : numpy.ndarray
        Token numbers [windows, tokens].
    progress : Progress
        Shows what is going on.
    """

    model: Any
    windows: np.ndarray
    progress: Progress

    def losses(
        self,
        what: str,
        lanes: Lanes,
        *,
        rates: Sequence[FlipRates] | None = None,
        observer: Observer | None = None,
        windows: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the losses of named policies, each [windows, tokens - 1]."""
        chosen = self.windows[:windows]
        done = self.progress(what, len(chosen) * self.model.config.num_hidden_layers)
        losses, _share = measure_losses(
            self.model, chosen, list(lanes.values()), rates=rates, observer=observer, done=done
        )
        return dict(zip(lanes, losses, strict=True))

    def fallback_share(self, what: str, policy: Policy) -> float:
        """Return the share of VEDA's voters that fall back, over the first window."""
        done = self.progress(what, self.model.config.num_hidden_layers)
        return measure_losses(self.model, self.windows[:1], [policy], done=done)[1]


def news(windows: int, progress: Progress) -> Subject:
    """Return SmolLM2-135M and the first windows of the news text."""
    tokens = load_tokens(text_named("news"))[: windows * CONTEXT]
    return Subject(model=load_model(), windows=tokens.reshape(-1, CONTEXT), progress=progress)


def perplexities(losses: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the perplexity of each lane."""
    return {name: perplexity_of(lost) for name, lost in losses.items()}
