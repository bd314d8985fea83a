"""Losses of SmolLM2 at each token with P3-LLM's formats; finished passes are cached."""

import hashlib
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.llm import text_named
from golden.llm.model import GGUF_SHA256, load_tokens
from golden.llm.store import TensorStore
from golden.p3llm.scheme import Scheme, linear_layers, quantised, rounded_weights
from golden.study.losses import LOGITS
from golden.study.subject import Progress
from hdl.paths import BUILD, locked
from hdl.sources import code_digest

Schemes = Mapping[str, Scheme]
Losses = dict[str, np.ndarray]
CALIBRATION_TOKENS = 1024
MIGRATION = 0.5
"""SmoothQuant's alpha: the share of an activation's range that moves to the weights."""


def code() -> str:
    """Return a digest of the model's digest and the code that measures the model."""
    return hashlib.sha256(f"{GGUF_SHA256} {code_digest(__name__)}".encode()).hexdigest()


class SchemePasses:
    """Losses of schemes over windows of text.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    progress : Progress
        Called for each pass with its number of steps.
    store : TensorStore, optional
        Cache of finished passes.
    changed : str
        Identifier of a change of the model's own weights, which is part of each pass's key; empty
        for the weights of the file.
    """

    def __init__(
        self,
        model: Any,
        progress: Progress,
        store: TensorStore | None = None,
        *,
        changed: str = "",
    ) -> None:
        self.model = model
        self.progress = progress
        self.store = store
        self.changed = changed
        self._code = code() + changed
        self._shifts: dict[str, Tensor] | None = None
        self._held: Losses = {}

    def losses(self, what: str, schemes: Schemes, windows: np.ndarray) -> Losses:
        """Return the losses of named schemes, each [windows, tokens - 1]."""
        done = self.progress(what, len(schemes) * len(windows))
        measured: dict[str, np.ndarray] = {}

        def weights(name: str) -> tuple[str, int, bool]:
            scheme = schemes[name]
            return scheme.weights, scheme.group, scheme.activations == "INT8-SQ"

        # Quantising all weights takes as long as many windows: do it once for all schemes that
        # share them.
        for (kind, group, shifted), names in groupby(sorted(schemes, key=weights), key=weights):
            run = list(names)
            missing = [name for name in run if not self._kept(schemes[name], windows)]
            if missing:
                shifts = self.shifts() if shifted else None
                with rounded_weights(self.model, kind, group, shifts):
                    for window in windows:
                        for name in missing:
                            self._measure(schemes[name], window, shifts)
                            done()
            for name in run:
                rows = [self._read(schemes[name], window) for window in windows]
                measured[name] = np.stack(rows)
        return {name: measured[name] for name in schemes}

    def shifts(self) -> dict[str, Tensor]:
        """Return SmoothQuant's factors of each layer's inputs, calibrated on the prose text."""
        if self._shifts is None:
            tokens = load_tokens(text_named("prose"))[:CALIBRATION_TOKENS]
            self._shifts = smooth_quant_shifts(self.model, tokens)
        return self._shifts

    def _name(self, scheme: Scheme, window: np.ndarray) -> str:
        inputs = f"{self._code} {window.tolist()} {scheme!r}"
        return hashlib.sha256(inputs.encode()).hexdigest()[:16]

    def _kept(self, scheme: Scheme, windows: np.ndarray) -> bool:
        names = [self._name(scheme, window) for window in windows]
        if self.store is None:
            return all(name in self._held for name in names)
        return all(self.store.intact(name) for name in names)

    def _measure(self, scheme: Scheme, window: np.ndarray, shifts: Any) -> None:
        name = self._name(scheme, window)
        if self.store is not None and self.store.intact(name):
            return
        with quantised(self.model, scheme, shifts=shifts):
            lost = window_losses(self.model, window)
        if self.store is None:
            self._held[name] = lost
        else:
            with locked(self.store.folder / "lock"):
                self.store.write(name, {"losses": lost})

    def _read(self, scheme: Scheme, window: np.ndarray) -> np.ndarray:
        name = self._name(scheme, window)
        return self._held[name] if self.store is None else self.store.read(name, "losses")


def kept_passes(model: Any, progress: Progress) -> SchemePasses:
    """Return passes that are cached in the build folder."""
    return SchemePasses(model, progress, TensorStore(BUILD / "study" / "passes-p3llm"))


def window_losses(model: Any, window: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood of each token of a window but the first, float64."""
    text = torch.tensor(np.asarray(window), dtype=torch.long)
    parts = []
    with torch.inference_mode():
        states = model.model(input_ids=text[None], use_cache=False).last_hidden_state[0]
        for first in range(0, len(text) - 1, LOGITS):
            last = min(first + LOGITS, len(text) - 1)
            expected = text[first + 1 : last + 1]
            logits = model.lm_head(states[first:last])
            parts.append(torch.nn.functional.cross_entropy(logits, expected, reduction="none"))
    return torch.cat(parts).double().numpy()


def smooth_quant_shifts(model: Any, tokens: np.ndarray) -> dict[str, Tensor]:
    """Return SmoothQuant's factors, which divide inputs and multiply weights, by layer."""
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[..., None]:
        def seen(_: Any, inputs: tuple[Tensor, ...]) -> None:
            largest[name] = inputs[0].abs().flatten(0, -2).amax(0)

        return seen

    layers = linear_layers(model)
    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in layers.items()]
    window_losses(model, tokens)
    for hook in hooks:
        hook.remove()
    return {
        name: (
            largest[name].clamp_min(1e-5) ** MIGRATION
            / module.weight.abs().amax(0).clamp_min(1e-5) ** (1 - MIGRATION)
        ).clamp_min(1e-5)
        for name, module in layers.items()
    }
