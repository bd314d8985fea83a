"""Quantisation schemes: the format of each tensor, and `transformers` models that apply it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from golden.p3llm.tensor_formats import (
    Probabilities,
    asymmetric,
    bitmod,
    e4m3,
    grouped_integers,
    integers,
    probabilities,
)

ROWS = 128
"""Number of queries whose scores are computed at a time."""
NAME = "systola_quantised"


class Rope(Enum):
    """Whether keys are quantised before or after the rotary embedding."""

    PRE = "pre-RoPE"
    POST = "post-RoPE"


class Fusion(Enum):
    """How the scales of values enter the probabilities.

    Members
    -------
    SECOND_LEVEL : str
        Divided by their maximum, by which the result is multiplied: Section V-B.
    DIRECT : str
        Unchanged: the authors' code.
    """

    SECOND_LEVEL = "second level"
    DIRECT = "direct"


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Formats of all tensors.

    Parameters
    ----------
    weights : str
        Format of weights: ``"FP16"`` (unchanged), ``"BitMoD"``, ``"INT4"`` or another
        ``"INT<bits>"``.
    activations : str
        Format of activations: ``"FP16"``, ``"E4M3"``, ``"INT<bits>"`` or ``"INT8-SQ"``, which needs
        the calibration that is given with the model.
    cache_bits : int
        Bits of keys and values; 16 if unchanged.
    rope : Rope
        Whether keys are quantised before or after the rotary embedding.
    smoothing : bool
        Keys are divided by their channels' maxima.
    query : bool
        Queries are in E4M3; only with keys after the rotary embedding.
    probabilities : Probabilities
        Format of probabilities.
    fusion : Fusion
        How the scales of values enter the probabilities.
    group : int
        Weights per group; halved if it does not divide the inputs.
    prompt : int, optional
        Tokens from whose keys the smoothing factors are computed, and which are cached before the
        first step: the whole text if not given, as for the published perplexities.
    residual : bool
        A token's own key and value are not yet quantised in its own step.
    """

    weights: str = "FP16"
    activations: str = "FP16"
    cache_bits: int = 16
    rope: Rope = Rope.POST
    smoothing: bool = False
    query: bool = False
    probabilities: Probabilities = Probabilities.FP16
    fusion: Fusion = Fusion.SECOND_LEVEL
    group: int = 128
    prompt: int | None = None
    residual: bool = False


PUBLISHED = Scheme(
    weights="BitMoD",
    activations="E4M3",
    cache_bits=4,
    smoothing=True,
    query=True,
    probabilities=Probabilities.S0E4M4,
)
"""W4A8KV4P8 of the paper, for models with keys quantised after the rotary embedding."""


def smoothing_factors(keys: Tensor) -> Tensor:
    """Return the channels' largest magnitudes over tokens [.., 1, size]; 1 for one of zeros."""
    largest = keys.abs().amax(-2, keepdim=True)
    return torch.where(largest == 0, 1, largest)


class QuantisedAttention:
    """An attention function for `transformers` that applies a scheme.

    Parameters
    ----------
    scheme : Scheme
        Formats of all tensors.
    done : Callable, optional
        Called after each layer.
    """

    def __init__(self, scheme: Scheme, *, done: Callable[[], None] | None = None) -> None:
        self.scheme = scheme
        self._done = done

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
        """Attend: query [texts, heads, tokens, size]; key, value with fewer heads."""
        scheme = self.scheme
        texts, kv_heads, tokens, size = key.shape
        queries = query.view(texts, kv_heads, -1, tokens, size)
        prompt = scheme.prompt or tokens
        asked, stored = self._keys(queries, key, prompt)
        codes, scales = value, torch.ones_like(value[..., :1])
        if scheme.cache_bits < 16:
            codes, scales = asymmetric(value, scheme.cache_bits)
        largest = self._largest(scales, prompt)
        outputs = []
        for start in range(0, tokens, ROWS):
            rows = slice(start, min(start + ROWS, tokens))
            scores = asked[..., rows, :] @ stored[:, :, None, : rows.stop].mT * scaling
            if scheme.residual:
                own = (queries[..., rows, :] * key[:, :, None, rows]).sum(-1) * scaling
                scores.diagonal(start, -2, -1).copy_(own)
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(start + 1)
            shares = scores.masked_fill(later, -torch.inf).softmax(-1)
            outputs.append(self._attended(shares, rows, codes, scales, largest, value))
        if self._done:
            self._done()
        output = torch.cat(outputs, dim=-2).view(texts, -1, tokens, size)
        return output.transpose(1, 2), None

    def _keys(self, queries: Tensor, key: Tensor, prompt: int) -> tuple[Tensor, Tensor]:
        """Return the queries and keys to be multiplied."""
        scheme = self.scheme
        if scheme.cache_bits == 16 or scheme.rope is Rope.PRE:
            return queries, key
        if scheme.smoothing:
            factors = smoothing_factors(key[..., :prompt, :])
            queries, key = queries * factors[:, :, None], key / factors
        codes, scales = asymmetric(key, scheme.cache_bits)
        return e4m3(queries) if scheme.query else queries, codes * scales

    def _largest(self, scales: Tensor, prompt: int) -> Tensor:
        """Return the factors of each query's result [texts, heads, 1, tokens, 1]."""
        if self.scheme.fusion is Fusion.DIRECT or self.scheme.probabilities is Probabilities.FP16:
            return torch.ones_like(scales)[:, :, None]
        first = scales[..., :prompt, :].amax(-2, keepdim=True)
        return scales.cummax(-2).values.maximum(first)[:, :, None]

    def _attended(
        self,
        shares: Tensor,
        rows: slice,
        codes: Tensor,
        scales: Tensor,
        largest: Tensor,
        value: Tensor,
    ) -> Tensor:
        """Return the weighted sums of values for some queries."""
        scheme = self.scheme
        own = shares.diagonal(rows.start, -2, -1).clone() if scheme.residual else None
        if own is not None:
            shares.diagonal(rows.start, -2, -1).zero_()
        if scheme.probabilities is Probabilities.FP16:
            output = shares @ (codes * scales)[:, :, None, : rows.stop]
        else:
            ratio = scales[:, :, None, : rows.stop, 0].unsqueeze(-2) / largest[..., rows, :]
            fused = shares.to(torch.float16).to(shares.dtype) * ratio.to(torch.float16)
            rounded = probabilities(fused, scheme.probabilities)
            output = rounded @ codes[:, :, None, : rows.stop] * largest[..., rows, :]
        if own is not None:
            output = output + own[..., None] * value[:, :, None, rows]
        return output


def weight_format(weights: str, group: int) -> Callable[[Tensor], Tensor]:
    """Return the function that rounds a matrix, with its inputs along the last axis."""

    def fitting(matrix: Tensor) -> int:
        return group if matrix.shape[-1] % group == 0 else group // 2

    if weights == "BitMoD":
        return lambda matrix: bitmod(matrix, fitting(matrix))
    bits = int(weights.removeprefix("INT"))
    return lambda matrix: grouped_integers(matrix, fitting(matrix), bits)


def linear_layers(model: Any) -> dict[str, torch.nn.Linear]:
    """Return the decoder's linear layers by name; neither embedding nor head is quantised."""
    return {
        name: module
        for name, module in model.model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


@contextmanager
def rounded_weights(
    model: Any, weights: str, group: int, shifts: dict[str, Tensor] | None = None
) -> Iterator[None]:
    """Round a model's weights within a context.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    weights : str
        Format of weights, as in `Scheme`.
    group : int
        Weights per group.
    shifts : dict, optional
        Factors of each layer's input channels before rounding, for SmoothQuant.
    """
    with ExitStack() as undo:
        for name, module in linear_layers(model).items():
            original = module.weight.data
            matrix = original * shifts[name] if shifts else original
            if weights != "FP16":
                matrix = weight_format(weights, group)(matrix)
            undo.callback(setattr, module.weight, "data", original)
            module.weight.data = matrix
        yield


@contextmanager
def quantised(
    model: Any,
    scheme: Scheme,
    *,
    shifts: dict[str, Tensor] | None = None,
    done: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Apply a scheme to a model within a context; its weights are not changed.

    Parameters
    ----------
    model
        A causal language model of `transformers`, within `rounded_weights` if these are rounded.
    scheme : Scheme
        Formats of all other tensors.
    shifts : dict, optional
        Divisors of each layer's input channels, for ``"INT8-SQ"``.
    done : Callable, optional
        Called after each layer.
    """
    from transformers import AttentionInterface

    before = model.config._attn_implementation
    AttentionInterface.register(NAME, QuantisedAttention(scheme, done=done))
    model.config._attn_implementation = NAME
    with ExitStack() as undo:
        undo.callback(setattr, model.config, "_attn_implementation", before)
        for name, module in linear_layers(model).items():
            if scheme.activations != "FP16":
                change = _activation_format(scheme.activations, shifts[name] if shifts else None)
                hook = module.register_forward_pre_hook(
                    lambda _, inputs, change=change: (change(inputs[0]),)
                )
                undo.callback(hook.remove)
            if scheme.cache_bits < 16 and scheme.rope is Rope.PRE and name.endswith("k_proj"):
                hook = module.register_forward_hook(_unturned_keys(model, scheme))
                undo.callback(hook.remove)
        yield


def _activation_format(activations: str, shift: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the function that rounds a layer's inputs, with one scale per token."""
    if activations == "E4M3":
        return e4m3
    if activations == "INT8-SQ" and shift is not None:
        return lambda inputs: integers(inputs / shift, 8)
    bits = int(activations.removeprefix("INT"))
    return lambda inputs: integers(inputs, bits)


def _unturned_keys(model: Any, scheme: Scheme) -> Callable[..., Tensor]:
    """Return a hook that quantises keys before RoPE: smooth, round, multiply back."""
    size = model.model.layers[0].self_attn.head_dim

    def rounded(_: Any, __: Any, made: Tensor) -> Tensor:
        keys = made.unflatten(-1, (-1, size)).transpose(-2, -3)
        factors: Tensor | float = 1.0
        if scheme.smoothing:
            factors = smoothing_factors(keys[..., : scheme.prompt or keys.shape[-2], :])
        codes, scales = asymmetric(keys / factors, scheme.cache_bits)
        return (codes * scales * factors).transpose(-2, -3).flatten(-2)

    return rounded
