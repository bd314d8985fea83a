"""Eviction policies, replayed for many lanes at once over a given text.

A lane is one sequence under one policy. Lanes share every matrix product of the model and differ in
the cached tokens that each query attends to. Tokens keep their positions in the text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golden.kelle.edram.refresh_controller import high_group
from golden.kelle.eviction.head_scores import HeadScores
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.parameters import require, require_choice, require_range

LONGEST = 1 << 20
SINKS = 10
STREAMING_SINKS = 4
SCORE_BITS, SCORE_FRACTION, SCORE_SHIFT = 16, 10, 2
"""Width and fraction bits of Kelle's scores, and the bits dropped before accumulation."""
EXPORTED_BITS = 4
"""Bits of an importance that Kelle's refresh controllers receive."""


class Source(Enum):
    """The quantity that is accumulated as a token's importance."""

    NONE = "nothing"
    RAW = "raw scores"
    PROB = "probabilities"
    INTEGER = "raw scores in the accelerator's integers"


class Unit(Enum):
    """The heads that evict together: their scores are added, and all evict the same token."""

    QUERY_HEAD = "query head"
    KV_HEAD = "key/value head"
    LAYER = "layer"


class Split(Enum):
    """The rule that selects the half of the cached tokens with high scores for refresh."""

    HEAD = "a head's tokens above the median of its importances"
    CENTRE = "a head's tokens above its tracked median, by four bits, as the accelerator"


@dataclass(frozen=True, kw_only=True)
class ScorePolicy:
    """Evict the least important token outside sinks and window, for each KV head or unit.

    Parameters
    ----------
    budget : int
        Number of cached tokens, without the current token.
    sinks : int
        First tokens of the text that are never evicted.
    window : int
        Number of most recent tokens that are never evicted, with the current one.
    source : Source
        Quantity that the query heads of a KV head add to importance. With `NONE` all tokens are
        equally important. Ties evict the earliest token.
    prefill : int
        Number of first tokens that all attend to each other; the cache is reduced to its budget
        after the last of them. With 0, eviction begins when the cache is full.
    unit : Unit
        Heads that evict together.
    split : Split
        Rule for high-score tokens, for bit errors; `CENTRE` requires the source `INTEGER`.

    Raises
    ------
    ValueError
        If no slot could be evicted, or the split requires another source.
    """

    budget: int
    sinks: int
    window: int
    source: Source
    prefill: int = 0
    unit: Unit = Unit.KV_HEAD
    split: Split = Split.HEAD

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("budget", self.budget, 1, LONGEST)
        require_range("sinks", self.sinks, 0, LONGEST)
        require_range("window", self.window, 1, LONGEST)
        require_choice("source", self.source, list(Source))
        require_range("prefill", self.prefill, 0, LONGEST)
        require_choice("unit", self.unit, list(Unit))
        require_choice("split", self.split, list(Split))
        integers = self.split is Split.HEAD or self.source is Source.INTEGER
        require(integers, "split by a tracked median needs the source INTEGER", self.source)
        least = self.sinks + self.window + 1
        require(self.budget >= least, f"budget must be at least {least}", self.budget)


def full_cache(source: Source = Source.NONE) -> ScorePolicy:
    """Keep every token; importance, if accumulated, only splits the tokens."""
    return ScorePolicy(budget=LONGEST, sinks=0, window=1, source=source)


def streaming_llm(budget: int) -> ScorePolicy:
    """Keep four sinks and the most recent tokens."""
    return ScorePolicy(budget=budget, sinks=STREAMING_SINKS, window=1, source=Source.NONE)


def h2o(budget: int, unit: Unit = Unit.KV_HEAD) -> ScorePolicy:
    """Keep heavy hitters by accumulated probability; half of the budget is the recent window."""
    return ScorePolicy(budget=budget, sinks=0, window=budget // 2, source=Source.PROB, unit=unit)


def aerp(budget: int, source: Source, prefill: int = 0, split: Split = Split.HEAD) -> ScorePolicy:
    """Keep Kelle's selection: ten sinks, a recent half, and the most important other tokens."""
    return ScorePolicy(
        budget=budget,
        sinks=min(SINKS, budget // 4),
        window=budget // 2,
        source=source,
        prefill=prefill,
        split=split,
    )


@dataclass(frozen=True, kw_only=True)
class VotingPolicy:
    """Evict the token with the most votes of a layer's queries (VEDA, Figure 3).

    A query head with probabilities s over l tokens votes against those below a/l - b*sigma. If this
    threshold is negative, it votes against the token with the smallest probability. Ties resolve to
    the lowest slot; the new token is stored in the evicted slot.

    Parameters
    ----------
    budget : int
        Number of cached tokens, at least `reserved`.
    a, b : float
        Weights of mean and standard deviation, not negative.
    reserved : int
        Number of first tokens of the text that do not vote (R).
    fallback : bool
        Whether a negative threshold causes one vote; otherwise it causes none.

    Raises
    ------
    ValueError
        If a value violates a rule above.
    """

    budget: int
    a: float = 1.0
    b: float = 0.2
    reserved: int = 32
    fallback: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("reserved", self.reserved, 0, LONGEST)
        require_range("budget", self.budget, 1, LONGEST)
        require(
            self.budget >= self.reserved,
            f"budget must be at least reserved = {self.reserved}",
            self.budget,
        )
        require(self.a >= 0, "a must not be negative", self.a)
        require(self.b >= 0, "b must not be negative", self.b)


Policy = ScorePolicy | VotingPolicy


class Replay(Protocol):
    """The state of a class of policies for one layer during the replay of its queries."""

    def step(self, now: int, alive: Tensor, raw: Tensor, prob: Tensor) -> None:
        """Process the scores of query `now`, and evict tokens of lanes whose cache is full.

        Parameters
        ----------
        now : int
            Position of the query.
        alive : Tensor
            bool [lanes, key/value heads, now + 1], the cached tokens; changed in place.
        raw, prob : Tensor
            [lanes, key/value heads, query heads of each, now + 1], scores and probabilities;
            minus infinity and zero where a token is not cached.
        """
        ...

    def important(self, alive: Tensor) -> Tensor:
        """Return the more important half of each head's `alive` tokens as a mask."""
        ...


class ScoreReplay:
    """Importance of the tokens of one layer, for lanes that evict by importance.

    Parameters
    ----------
    policies : Sequence[ScorePolicy]
        One policy per lane.
    kv_heads, tokens : int
        Number of heads with separate caches, and length of the text.
    dtype : torch.dtype
        Type of importance.
    shared : int
        Number of query heads per KV head if `kv_heads` counts query heads, otherwise 1.

    Raises
    ------
    ValueError
        If a policy evicts per query head, and `kv_heads` does not count query heads.
    """

    def __init__(
        self,
        policies: Sequence[ScorePolicy],
        kv_heads: int,
        tokens: int,
        dtype: torch.dtype,
        shared: int = 1,
    ) -> None:
        def each(values: list[int] | list[bool]) -> Tensor:
            return torch.tensor(values)[:, None, None]

        # The first query after which a token is evicted.
        full = [max(policy.budget, policy.prefill) for policy in policies]
        self._full, self._least = each(full), min(full)
        self._policies = tuple(policies)
        self._sinks = each([policy.sinks for policy in policies])
        self._window = each([policy.window for policy in policies])
        self._shared = shared
        self._raw = each([policy.source is Source.RAW for policy in policies])
        self._integer = each([policy.source is Source.INTEGER for policy in policies])
        self._units = [policy.unit for policy in policies]
        self._none = each([policy.source is Source.NONE for policy in policies])
        self._positions = torch.arange(tokens)
        self.importance = torch.zeros(len(policies), kv_heads, tokens, dtype=dtype)
        # The models of the accelerator's scores, and the groups after the last step.
        self._scores = {
            lane: [HeadScores(eviction_of(policy)) for _ in range(kv_heads)]
            for lane, policy in enumerate(policies)
            if policy.split is Split.CENTRE
        }
        self._high = torch.zeros(len(policies), kv_heads, tokens, dtype=torch.bool)

    def step(self, now: int, alive: Tensor, raw: Tensor, prob: Tensor) -> None:
        """Add scores to importance; evict the least important unprotected token."""
        importance = self.importance[..., : now + 1]
        given = torch.where(self._raw, raw.sum(2), prob.sum(2))
        if self._integer.any():
            given = torch.where(self._integer, accelerator_scores(raw).sum(2), given)
        given = given.masked_fill_(~alive, 0).masked_fill_(self._none, 0)
        importance += self._together(given)
        self._divide(now, alive)
        for lane, policy in enumerate(self._policies):
            if now + 1 == policy.prefill > policy.budget:
                _keep_best(policy, importance[lane], alive[lane])
        if now < self._least:
            return
        positions = self._positions[: now + 1]
        protected = (positions < self._sinks) | (positions > now - self._window)
        cost = importance.masked_fill(protected | ~alive, torch.inf)
        victim = cost.argmin(-1, keepdim=True)
        alive.scatter_(-1, victim, alive.gather(-1, victim) & (now < self._full))

    def _together(self, given: Tensor) -> Tensor:
        """Replace scores [lanes, heads, tokens] by their sums over the heads of each unit."""
        together = given
        if self._shared > 1:
            groups = given.unflatten(1, (-1, self._shared))
            together = groups.sum(2, keepdim=True).expand_as(groups).flatten(1, 2)
        for lane, unit in enumerate(self._units):
            if unit is Unit.LAYER:
                together[lane] = given[lane].sum(0, keepdim=True)
            elif unit is Unit.QUERY_HEAD:
                together[lane] = given[lane]
        return together

    def _divide(self, now: int, alive: Tensor) -> None:
        """Divide the tokens by the accelerator's bit-exact scores; an arriving token is high."""
        for lane, heads in self._scores.items():
            for head, scores in enumerate(heads):
                # Every cached token takes part in the search; the current one does not yet.
                cached = alive[lane, head, :now]
                importance = self.importance[lane, head, :now][cached].numpy().astype(np.int64)
                coarse = scores.coarse(importance)
                self._high[lane, head, :now][cached] = torch.from_numpy(
                    high_group(coarse, EXPORTED_BITS)
                )
                self._high[lane, head, now] = True
                scores.learn(importance)

    def important(self, alive: Tensor) -> Tensor:
        """Split the tokens by each lane's policy; the last token is the current one."""
        importance = self.importance[..., : alive.shape[-1]].masked_fill(~alive, torch.nan)
        high = importance > importance.nanmedian(-1, keepdim=True).values
        for lane in self._scores:
            high[lane] = self._high[lane, :, : alive.shape[-1]]
        return high


def accelerator_scores(raw: Tensor) -> Tensor:
    """Return the values that Kelle's evictor accumulates: Q6.10 in base 2, without dropped bits."""
    scores = (raw * (math.log2(math.e) * (1 << SCORE_FRACTION))).round()
    limit = 1 << SCORE_BITS - 1
    return (scores.clamp(-limit, limit - 1) / (1 << SCORE_SHIFT)).floor()


def eviction_of(policy: ScorePolicy) -> EvictionParameters:
    """Return the accelerator's parameters for a policy; its sums do not saturate."""
    evictor = SystolicEvictorParameters(
        rows=2, slots=policy.budget, index_width=12, shift=SCORE_SHIFT, score_width=32
    )
    return EvictionParameters(
        evictor=evictor,
        window=policy.window,
        sinks=policy.sinks,
        score_bits=EXPORTED_BITS,
    )


def _keep_best(policy: ScorePolicy, importance: Tensor, alive: Tensor) -> None:
    """Reduce a prefilled cache [KV heads, tokens] to its budget; ties keep the earlier token."""
    count = alive.shape[-1]
    others = slice(policy.sinks, count - policy.window)
    chosen = importance[:, others].sort(dim=-1, descending=True, stable=True).indices
    dropped = chosen[:, policy.budget - policy.sinks - policy.window :]
    alive[:, others].scatter_(-1, dropped, False)


class VotingReplay:
    """Votes against the tokens of one layer, for lanes that evict by votes.

    Parameters
    ----------
    policies : Sequence[VotingPolicy]
        One policy per lane.
    tokens : int
        Length of the text.
    dtype : torch.dtype
        Type of thresholds.

    Members
    -------
    counts, slots : Tensor
        int64 [lanes, tokens], votes against each token, and its current or last slot.
    fallbacks, voters : int
        Number of query heads with a negative threshold, and of all that voted.
    """

    def __init__(self, policies: Sequence[VotingPolicy], tokens: int, dtype: torch.dtype) -> None:
        def each(values: list[float] | list[bool], kind: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=kind)[:, None, None, None]

        self._a = each([policy.a for policy in policies], dtype)
        self._b = each([policy.b for policy in policies], dtype)
        self._fallback = each([policy.fallback for policy in policies], torch.bool)
        self._reserved = torch.tensor([policy.reserved for policy in policies])
        self._budget = torch.tensor([policy.budget for policy in policies])[:, None, None]
        self._least = min(policy.budget for policy in policies)
        self.counts = torch.zeros(len(policies), tokens, dtype=torch.int64)
        self.slots = torch.arange(tokens).repeat(len(policies), 1)
        self.fallbacks = self.voters = 0

    def step(self, now: int, alive: Tensor, raw: Tensor, prob: Tensor) -> None:
        """Count the votes of every query head; evict the token with the most votes."""
        counts = self.counts[:, : now + 1]
        cached = alive[:, :1, None]
        length = cached.sum(-1, keepdim=True)
        mean = 1 / length.to(prob.dtype)
        variance = (prob * prob).sum(-1, keepdim=True) * mean - mean * mean
        threshold = self._a * mean - self._b * variance.clamp_(min=0).sqrt_()
        votes = (prob < threshold) & cached
        negative = threshold < 0
        lowest = prob.masked_fill(~cached, torch.inf).argmin(-1, keepdim=True)
        votes.scatter_(-1, lowest, votes.gather(-1, lowest) | (negative & self._fallback))
        voting = now >= self._reserved
        counts += votes.sum((1, 2)) * voting[:, None]
        self.fallbacks += int(negative[voting].sum())
        self.voters += negative[voting].numel()
        if now < self._least:
            return
        rank = counts * LONGEST - self.slots[:, : now + 1]
        worst = rank.masked_fill(~cached[:, 0, 0], -LONGEST).argmax(-1, keepdim=True)
        full = now >= self._budget
        if now + 1 < self.slots.shape[1]:
            free = self.slots.gather(-1, worst)[:, 0]
            self.slots[:, now + 1] = torch.where(full[:, 0, 0], free, now + 1)
        worst = worst[:, None].expand(-1, alive.shape[1], -1)
        alive.scatter_(-1, worst, alive.gather(-1, worst) & ~full)

    def important(self, alive: Tensor) -> Tensor:
        """Raise an error: votes rank tokens for eviction, not for protection."""
        raise NotImplementedError("a split of tokens requires importance scores, not votes")
