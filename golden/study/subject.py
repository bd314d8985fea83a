"""The model and the text of a study, and the progress of its passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden.llm import text_named
from golden.llm.model import GGUF_SHA256, load_model, load_tokens
from golden.policies.protocol import CachePolicy
from golden.study.attention import Fallbacks, Observer
from golden.study.losses import measure_losses, perplexity_of
from golden.study.passes import Passes, code_of
from golden.study.retention import FlipRates
from hdl.paths import BUILD

Progress = Callable[[str, int], Callable[[], None]]
"""Called with a pass's name and number of steps; returns a function to call at each step."""
Lanes = dict[str, CachePolicy]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A model, and the windows of text that measure it.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    windows : numpy.ndarray
        Token numbers [windows, tokens].
    progress : Progress
        Called for each pass with its number of steps.
    passes : Passes, optional
        Cache of finished passes.
    """

    model: Any
    windows: np.ndarray
    progress: Progress
    passes: Passes | None = None

    def losses(
        self,
        what: str,
        lanes: Lanes,
        *,
        rates: Sequence[FlipRates] | None = None,
        variant: str = "",
        windows: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the losses of named policies, each [windows, tokens - 1].

        Parameters
        ----------
        what : str
            Name of the pass for `progress`.
        lanes : Lanes
            Policies by name.
        rates : Sequence[FlipRates], optional
            Bit errors, one for each policy.
        variant : str
            Identifier of the caller's modification of the model.
        windows : int, optional
            Number of windows; all if not given.
        """
        texts = self.windows[:windows]
        done = self.progress(what, len(texts) * self.model.config.num_hidden_layers)
        policies = list(lanes.values())
        losses = []
        for number, window in enumerate(texts):

            def measure(number: int = number) -> np.ndarray:
                text = texts[number : number + 1]
                return measure_losses(
                    self.model, text, policies, rates=rates, seed=number + 1, done=done
                )

            if self.passes is None:
                losses.append(measure())
            else:
                # The window's number determines the seed of bit errors.
                key = f"{variant} {number if rates else 0}"
                losses.append(self.passes.losses(window, policies, rates, key, measure))
        return dict(zip(lanes, np.concatenate(losses, 1), strict=True))

    def observe(self, what: str, policy: CachePolicy, observer: Observer) -> None:
        """Call an observer with the tokens that a policy keeps of the first window."""
        done = self.progress(what, self.model.config.num_hidden_layers)
        measure_losses(self.model, self.windows[:1], [policy], observer=observer, done=done)

    def fallback_share(self, what: str, policy: CachePolicy) -> float:
        """Return the share of VEDA's voters that use the fallback, over the first window."""
        counted = Fallbacks()
        self.observe(what, policy, counted)
        return counted.share


def news(windows: int, context: int, progress: Progress) -> Subject:
    """Return SmolLM2-135M and the first windows of the news text, of `context` tokens each."""
    tokens = load_tokens(text_named("news"))[: windows * context]
    return Subject(
        model=load_model(),
        windows=tokens.reshape(-1, context),
        progress=progress,
        passes=Passes(BUILD / "study" / "passes", code_of(GGUF_SHA256)),
    )


def perplexities(losses: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the perplexity of each lane."""
    return {name: perplexity_of(lost) for name, lost in losses.items()}
