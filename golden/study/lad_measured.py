"""Passes of a whole model with LAD's attention and its rivals; results are cached."""

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from golden.llm.store import TensorStore
from golden.study.attention import attending
from golden.study.lad_attention import STATISTICS, LadAttention, LayerState, Scheme
from golden.study.lad_generation import generate
from golden.study.lad_rivals import HeavyHitters, Kv4
from golden.study.losses import LOGITS
from hdl.paths import locked
from hdl.sources import code_digest

Variant = Scheme | HeavyHitters | Kv4 | None
"""An attention function; None is the model's own."""

Progress = Callable[[str, int], Callable[[], None]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """The results of a pass over a text.

    Members
    -------
    losses : float64 array [tokens - 1]
        Negative log-likelihoods in nats.
    choices : int32 array [tokens - 1]
        The argmax tokens.
    nonpositive : int
        Number of denominators that were not above 0.
    """

    losses: np.ndarray
    choices: np.ndarray
    nonpositive: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Statistics of the steps of a text, for every layer and query head.

    Members
    -------
    counts : int16 array [layers, heads, tokens, len(STATISTICS)]
        The counts of `golden.study.lad_attention.STATISTICS`.
    shares : float64 array [lengths, layers, heads, I]
        At selected lengths: the probability of a position's most frequent interval, of its second
        and so on, averaged over the positions with at least 16 steps.
    """

    counts: np.ndarray
    shares: np.ndarray


class Laboratory:
    """A model, and a folder that caches its measurements.

    Parameters
    ----------
    model
        A causal language model of `transformers`; its linear layers compute in their own precision,
        the attentions in float64.
    folder : pathlib.Path
        Folder for finished passes.
    model_digest : str
        Digest that identifies the model.
    progress : Progress
        Called for each pass with its number of steps.
    """

    def __init__(self, model: Any, folder: Path, model_digest: str, progress: Progress) -> None:
        self.model = model
        self._store = TensorStore(folder)
        self._progress = progress
        self._inputs = f"{model_digest} {code_digest(__name__, 'golden.llm.model')}"

    def predictions(self, what: str, variant: Variant, tokens: np.ndarray) -> Measured:
        """Measure the loss of each token of a text."""

        def measure() -> dict[str, np.ndarray]:
            done = self._progress(what, self.model.config.num_hidden_layers)
            attention = _attention(variant, len(tokens), done)
            text = torch.tensor(tokens, dtype=torch.long)
            with torch.inference_mode(), self._attending(attention):
                states = self.model.model(input_ids=text[None], use_cache=False)
                hidden = states.last_hidden_state[0, :-1]
                losses, choices = [], []
                # In parts, because all logits of a text would take hundreds of megabytes.
                parts = zip(hidden.split(LOGITS), text[1:].split(LOGITS), strict=True)
                for part, expected in parts:
                    logits = self.model.lm_head(part)
                    losses.append(
                        torch.nn.functional.cross_entropy(logits, expected, reduction="none")
                    )
                    choices.append(logits.argmax(-1))
            return {
                "losses": torch.cat(losses).double().numpy(),
                "choices": torch.cat(choices).numpy().astype(np.int32),
                "nonpositive": np.array([getattr(attention, "nonpositive", 0)]),
            }

        inputs = f"predictions {variant!r} {tokens.tolist()}"
        found = self._kept(inputs, ("losses", "choices", "nonpositive"), measure)
        return Measured(
            losses=found["losses"],
            choices=found["choices"],
            nonpositive=int(found["nonpositive"][0]),
        )

    def generated(self, what: str, variant: Variant, prompts: np.ndarray, count: int) -> np.ndarray:
        """Continue prompts greedily; return the tokens [prompts, count]."""

        def measure() -> dict[str, np.ndarray]:
            done = self._progress(what, count)
            attention = _attention(variant, prompts.shape[1] + count, None)
            return {"tokens": generate(self.model, prompts, count, attention, done=done)}

        inputs = f"text {variant!r} {prompts.tolist()} {count}"
        return self._kept(inputs, ("tokens",), measure)["tokens"]

    def trace(
        self, what: str, scheme: Scheme, tokens: np.ndarray, lengths: tuple[int, ...]
    ) -> Trace:
        """Collect the statistics of each step of a text."""

        def measure() -> dict[str, np.ndarray]:
            layers = self.model.config.num_hidden_layers
            heads = self.model.config.num_attention_heads
            done = self._progress(what, layers)
            counts = np.zeros((layers, heads, len(tokens), len(STATISTICS)), np.int16)
            shares = np.zeros((len(lengths), layers, heads, scheme.intervals.intervals))

            def observe(layer: int, n: int, found: torch.Tensor) -> None:
                counts[layer, :, n - 1] = found.view(heads, -1).numpy()
                if n in lengths:
                    state = attention.layers[layer]
                    shares[lengths.index(n), layer] = interval_shares(state, n)

            attention = LadAttention(scheme, capacity=len(tokens), done=done, observe=observe)
            text = torch.tensor(tokens, dtype=torch.long)
            with torch.inference_mode(), attending(self.model, attention):
                self.model.model(input_ids=text[None], use_cache=False)
            return {"counts": counts, "shares": shares}

        inputs = f"trace {scheme!r} {tokens.tolist()} {lengths}"
        return Trace(**self._kept(inputs, ("counts", "shares"), measure))

    def _attending(self, attention: Any) -> Any:
        return attending(self.model, attention) if attention else nullcontext()

    def _kept(
        self, inputs: str, names: tuple[str, ...], measure: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return the cached tensors for the inputs of a pass, after a measurement if missing."""
        name = hashlib.sha256(f"{self._inputs} {inputs}".encode()).hexdigest()[:16]
        if not self._store.intact(name):
            found = measure()
            with locked(self._store.folder / "lock"):
                self._store.write(name, found)
        return {tensor: self._store.read(name, tensor) for tensor in names}


def _attention(variant: Variant, capacity: int, done: Callable[[], None] | None) -> Any:
    """Return the attention function of a variant."""
    if isinstance(variant, Scheme):
        return LadAttention(variant, capacity=capacity, done=done)
    # Rivals contain the state of their layers, so each pass needs a new object.
    return None if variant is None else type(variant)()


def interval_shares(state: LayerState, length: int) -> np.ndarray:
    """Return the mean probabilities [heads, I] of positions' intervals, in descending order."""
    counts = state.counts[..., : max(length - 15, 1), :].double()
    shares = (counts / counts.sum(-1, keepdim=True)).sort(-1, descending=True).values
    return shares.mean(-2).flatten(0, -2).numpy()
