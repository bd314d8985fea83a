"""The rivals of LAD: H2O with shares of 10 % and 10 %, and keys and values in 4 bits."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LEVELS = 15
"""Maximum 4-bit code."""


@dataclass(frozen=True, kw_only=True)
class Kv4:
    """Attention over keys and values in unsigned 4 bits, with exact scale and zero per vector.

    This is QServe's KV4 without smoothing: each key and value vector of a head has its own range.
    """

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
        """Attend, with the interface of `LadAttention`."""
        queries, scores = _scores(query, _in_four_bits(key.double()), scaling)
        return _output(queries, scores.softmax(-1), _in_four_bits(value.double()), query), None


@dataclass(frozen=True, kw_only=True)
class HeavyHitters:
    """H2O: a cache of the most attended and the latest positions.

    As in the published code, both budgets are shares of the prompt's length, and the prompt attends
    to all its positions. Query heads of a KV head share its cache, so their probabilities are
    added.

    Parameters
    ----------
    heavy, recent : float
        Budgets of most attended and latest positions, as shares of the prompt's length.
    """

    heavy: float = 0.1
    recent: float = 0.1
    _layers: dict[int, tuple[int, Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        """Attend, with the interface of `LadAttention`, and reduce the cache to the budgets."""
        queries, scores = _scores(query, key.double(), scaling)
        tokens, new = key.shape[2], query.shape[2]
        if tokens > new:
            prompt, mass, alive = self._layers[module.layer_idx]
            grown = tokens - mass.shape[-1]
            mass = torch.cat([mass, mass.new_zeros(*mass.shape[:-1], grown)], -1)
            alive = torch.cat([alive, alive.new_ones(*alive.shape[:-1], grown)], -1)
            scores = scores.masked_fill(~alive[:, :, None, None], -torch.inf)
        else:
            prompt, mass = tokens, key.new_zeros(key.shape[:3]).double()
            alive = torch.ones(key.shape[:3], dtype=torch.bool)
        shares = scores.softmax(-1)
        mass = mass + shares.sum((2, 3))
        recent = max(int(self.recent * prompt), 1)
        kept = torch.zeros_like(alive)
        kept[..., -recent:] = True
        older = mass.masked_fill(~alive, -1.0)[..., :-recent]
        kept.scatter_(-1, older.topk(int(self.heavy * prompt), -1).indices, value=True)
        self._layers[module.layer_idx] = (prompt, mass, kept & alive)
        return _output(queries, shares, value.double(), query), None


def _scores(query: Tensor, key: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """Return grouped queries, and causal scores [lanes, KV heads, group, queries, tokens]."""
    lanes, kv_heads, tokens, size = key.shape
    new = query.shape[2]
    queries = (query.double() * scaling).view(lanes, kv_heads, -1, new, size)
    scores = queries @ key[:, :, None].mT
    later = torch.ones(new, tokens, dtype=torch.bool).triu(tokens - new + 1)
    return queries, scores.masked_fill(later, -torch.inf)


def _output(queries: Tensor, shares: Tensor, value: Tensor, query: Tensor) -> Tensor:
    lanes, _, _, new, size = queries.shape
    output = (shares @ value[:, :, None]).view(lanes, -1, new, size)
    return output.transpose(1, 2).to(query.dtype)


def _in_four_bits(vectors: Tensor) -> Tensor:
    """Round each vector to 16 levels between its extremes."""
    low = vectors.amin(-1, keepdim=True)
    scale = (vectors.amax(-1, keepdim=True) - low).clamp(min=1e-12) / LEVELS
    return ((vectors - low) / scale).round() * scale + low
