"""Attention over an evicting cache, for a whole text at once, inside a `transformers` model.

For a given text, each layer can be replayed for all tokens at once, because the tokens that query n
of a layer attends to depend only on earlier queries of that layer. The result equals token-by-token
decoding with the cache, while linear layers process whole texts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from golden.policies.cache import Cache
from golden.policies.protocol import CachePolicy, Query
from golden.policies.scores import ScorePolicy
from golden.policies.voting import Voting
from golden.study.retention import Retention
from hdl.parameters import require

BLOCK = 128
NAME = "systola_replayed"


class Observer:
    """What a replay reports; a subclass overrides what it uses."""

    def scores(self, layer: int, rows: slice, raw: Tensor) -> None:
        """Receive the scores of a block of queries, [lanes, heads, queries, rows.stop]."""

    def stepped(self, layer: int, query: Query, cache: Cache) -> None:
        """Receive a query and the cache after it; a query has one lane, the policy's own."""


class Fallbacks(Observer):
    """Count the voters of VEDA whose threshold is negative.

    Members
    -------
    share : float
        Their share of all voters.
    """

    def __init__(self) -> None:
        self._negative = self._voters = 0

    def stepped(self, layer: int, query: Query, cache: Cache) -> None:
        """Count the voters of a query."""
        if isinstance(cache.policy, Voting) and query.now >= cache.policy.reserved:
            limits = cache.policy.threshold(query.prob)
            self._negative += int((limits < 0).sum())
            self._voters += limits.numel()

    @property
    def share(self) -> float:
        """Share of voters with a negative threshold."""
        return self._negative / max(self._voters, 1)


class ReplayedAttention:
    """An attention function for `transformers`: one policy for each sequence of the batch.

    Parameters
    ----------
    policies : Sequence[CachePolicy]
        One policy per sequence.
    retention : Retention, optional
        Bit errors in cached keys and values; a query's own key and value are not yet affected.
    observer : Observer, optional
        Receives scores and steps.
    done : Callable, optional
        Called after each layer.
    """

    def __init__(
        self,
        policies: Sequence[CachePolicy],
        *,
        retention: Retention | None = None,
        observer: Observer | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        self.policies = tuple(policies)
        self._retention = retention
        self._observer = observer
        self._done = done
        if retention:
            scored = all(isinstance(policy, ScorePolicy) for policy in policies)
            require(scored, "bit errors need policies with importance scores", policies)

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
        lanes, kv_heads, tokens, size = key.shape
        heads = query.shape[1]
        queries = (query * scaling).view(lanes, kv_heads, -1, tokens, size)
        caches = [
            Cache(policy, 1, policy.unit.caches(heads, kv_heads), tokens)
            for policy in self.policies
        ]
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
            shares = self._rows(
                module.layer_idx, rows, caches, [raw.flatten(1, 2) for raw in scores]
            )
            shares = [share.unflatten(1, (kv_heads, -1)) for share in shares]
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
        if self._done:
            self._done()
        output = torch.cat(outputs, dim=-2).view(lanes, -1, tokens, size)
        return output.transpose(1, 2), None

    def _rows(
        self, layer: int, rows: slice, caches: list[Cache], scores: list[Tensor]
    ) -> list[Tensor]:
        """Replay a block of queries; return the probabilities of each stored copy's tokens."""
        if self._observer:
            self._observer.scores(layer, rows, scores[0])
        shares = [torch.zeros_like(raw) for raw in scores]
        for lane, cache in enumerate(caches):
            count = cache.positions.shape[1]
            # [1, caches, query heads of a cache, queries, tokens]
            given, made = (
                [part[lane].unflatten(0, (count, -1))[None] for part in parts]
                for parts in (scores, shares)
            )
            for now in range(rows.start, rows.stop):
                row = now - rows.start
                self._query(
                    layer,
                    now,
                    cache,
                    [raw[..., row, :] for raw in given],
                    [share[..., row, :] for share in made],
                )
        return shares

    def _query(
        self, layer: int, now: int, cache: Cache, scores: list[Tensor], shares: list[Tensor]
    ) -> None:
        """Replay one query of one lane; write the probabilities of its tokens to `shares`."""
        positions = cache.arrive(now)
        if cache.in_order:
            given = [raw[..., : now + 1] for raw in scores]
        else:
            places = positions[:, :, None].expand(*scores[0].shape[:3], -1)
            given = [raw.gather(-1, places) for raw in scores]
        raw, strong = given[0], None
        if len(given) > 1:
            # Refresh controllers classify the tokens by the scores before this step.
            assert isinstance(cache.policy, ScorePolicy)
            strong = cache.policy.important(cache.importance, positions)[:, :, None]
            raw = torch.where(strong, raw, given[1])
        prob = raw.softmax(-1)
        parts = [prob] if strong is None else [prob * strong, prob * ~strong]
        for share, part in zip(shares, parts, strict=True):
            if cache.in_order:
                share[..., : now + 1] = part
            else:
                share.scatter_(-1, places, part)
        query = Query(now, positions, raw, prob)
        cache.step(query)
        if self._observer:
            self._observer.stepped(layer, query, cache)


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
