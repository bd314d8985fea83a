"""Attention over an evicting cache, for a whole text at once, inside a `transformers` model.

For a given text, each layer can be replayed for all tokens at once, because the tokens that query n
of a layer attends to depend only on earlier queries of that layer. The result equals token-by-token
decoding with the cache, while linear layers process whole texts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from golden.study.policies import (
    Policy,
    Replay,
    ScorePolicy,
    ScoreReplay,
    Unit,
    VotingPolicy,
    VotingReplay,
)
from golden.study.retention import Retention
from hdl.parameters import require

BLOCK = 128
NAME = "systola_replayed"

Replays = list[tuple[slice, Replay]]
Observer = Callable[[int, int, Tensor], None]
"""Called with layer, query and the cached tokens, bool [lanes, KV heads, query + 1]."""


class ReplayedAttention:
    """An attention function for `transformers`: one policy for each sequence of the batch.

    Parameters
    ----------
    policies : Sequence[Policy]
        One policy per sequence; policies of one class must be adjacent.
    retention : Retention, optional
        Bit errors in cached keys and values; a query's own key and value are not yet affected.
    observer : Observer, optional
        Called after each step with the cached tokens.
    done : Callable, optional
        Called after each layer.

    Members
    -------
    replays : list[tuple[slice, Replay]]
        The policies' state for the last layer, and the lanes that it covers.
    fallback_share : float
        Share of VEDA's voters whose threshold was negative, over the layers so far.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        *,
        retention: Retention | None = None,
        observer: Observer | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        self.policies = tuple(policies)
        self.replays: Replays = []
        self._retention = retention
        self._observer = observer
        self._done = done
        self._fallbacks = self._voters = 0

    @property
    def fallback_share(self) -> float:
        """Share of voters with a negative threshold."""
        return self._fallbacks / max(self._voters, 1)

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
        """Attend: query [lanes, heads, tokens, size]; key, value with fewer heads."""
        shared = 1
        if any(isinstance(p, ScorePolicy) and p.unit is Unit.QUERY_HEAD for p in self.policies):
            # Every query head has a separate cache, and so a separate copy of the keys.
            require(self._retention is None, "bit errors must be of shared caches", "query heads")
            shared = query.shape[1] // key.shape[1]
            key, value = (part.repeat_interleave(shared, 1) for part in (key, value))
        lanes, kv_heads, tokens, size = key.shape
        queries = (query * scaling).view(lanes, kv_heads, -1, tokens, size)
        self.replays = begin(self.policies, kv_heads, tokens, query.dtype, shared)
        alive = torch.ones(lanes, kv_heads, tokens, dtype=torch.bool)
        if self._retention:
            stored = self._retention.read(module.layer_idx, key, value)
        else:
            stored = [(key, value)]
        outputs = []
        for start in range(0, tokens, BLOCK):
            rows = slice(start, min(start + BLOCK, tokens))
            seen = slice(0, rows.stop)
            block = queries[..., rows, :]
            scores = [block @ k[:, :, None, seen].mT for k, _ in stored]
            if self._retention:
                own = (block * key[:, :, None, rows]).sum(-1)
                for raw in scores:
                    raw.diagonal(start, -2, -1).copy_(own)
            shares = self._rows(module.layer_idx, rows, alive, scores)
            if self._retention:
                # The query's own value has not been stored yet and has no bit errors.
                own = torch.stack([share.diagonal(start, -2, -1) for share in shares]).sum(0)
                outputs.append(own[..., None] * value[:, :, None, rows])
                for share in shares:
                    share.diagonal(start, -2, -1).zero_()
                outputs[-1] += sum(
                    share @ v[:, :, None, seen]
                    for share, (_, v) in zip(shares, stored, strict=True)
                )
            else:
                outputs.append(shares[0] @ value[:, :, None, seen])
        for _lanes, replay in self.replays:
            if isinstance(replay, VotingReplay):
                self._fallbacks += replay.fallbacks
                self._voters += replay.voters
        if self._done:
            self._done()
        output = torch.cat(outputs, dim=-2).view(lanes, -1, tokens, size)
        return output.transpose(1, 2), None

    def _rows(self, layer: int, rows: slice, alive: Tensor, scores: list[Tensor]) -> list[Tensor]:
        """Replay a block of queries; return the probabilities of each stored copy's tokens."""
        shares = [torch.zeros_like(raw) for raw in scores]
        for now in range(rows.start, rows.stop):
            known, row = alive[..., : now + 1], now - rows.start
            raw = scores[0][..., row, : now + 1]
            strong = None
            if len(scores) > 1:
                # Refresh controllers classify the tokens by the scores before this step.
                parts = [replay.important(known[lanes]) for lanes, replay in self.replays]
                strong = torch.cat(parts)[:, :, None]
                raw = torch.where(strong, raw, scores[1][..., row, : now + 1])
            raw = raw.masked_fill(~known[:, :, None], -torch.inf)
            prob = raw.softmax(-1)
            if strong is None:
                shares[0][..., row, : now + 1] = prob
            else:
                shares[0][..., row, : now + 1] = prob * strong
                shares[1][..., row, : now + 1] = prob * ~strong
            for lanes, replay in self.replays:
                replay.step(now, known[lanes], raw[lanes], prob[lanes])
            if self._observer:
                self._observer(layer, now, known)
        return shares


def begin(
    policies: Sequence[Policy], kv_heads: int, tokens: int, dtype: torch.dtype, shared: int = 1
) -> Replays:
    """Return initial replays, one per run of adjacent policies of a class, and their lanes."""
    replays: Replays = []
    first = 0
    for kind, run in groupby(policies, key=type):
        members = list(run)
        lanes = slice(first, first + len(members))
        first = lanes.stop
        if kind is ScorePolicy:
            scored = [policy for policy in members if isinstance(policy, ScorePolicy)]
            replays.append((lanes, ScoreReplay(scored, kv_heads, tokens, dtype, shared)))
        else:
            voted = [policy for policy in members if isinstance(policy, VotingPolicy)]
            replays.append((lanes, VotingReplay(voted, tokens, dtype)))
    return replays


@contextmanager
def attending(model: Any, attention: Callable[..., Any]) -> Iterator[None]:
    """Replace the attention function of a `transformers` model inside the context."""
    from transformers import AttentionInterface

    before = model.config._attn_implementation
    AttentionInterface.register(NAME, attention)
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
