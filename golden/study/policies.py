"""Eviction policies, replayed for many lanes at once over a text that is given.

A lane is one sequence under one policy. Lanes share every matrix product of the model; what
differs is which cached tokens each of their queries sees. Tokens keep their positions in the text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch
from torch import Tensor

from hdl.parameters import require, require_choice, require_range

LONGEST = 1 << 20
SINKS = 10
STREAMING_SINKS = 4
SCORE_BITS, SCORE_FRACTION, SCORE_SHIFT = 16, 10, 2
"""Kelle's scores, and the bits that one loses before it is added, in all presets of the model."""
EXPORTED_BITS = 4
"""What Kelle's refresh controllers see of an importance."""


class Source(Enum):
    """What is accumulated as a token's importance."""

    NONE = "nothing"
    RAW = "raw scores"
    PROB = "probabilities"
    INTEGER = "raw scores in the accelerator's integers"


class Unit(Enum):
    """Who evicts together: scores are added within a unit, and one token goes from all of it."""

    QUERY_HEAD = "query head"
    KV_HEAD = "key/value head"
    LAYER = "layer"


class Split(Enum):
    """Which half of the cached tokens is refreshed as high scores."""

    HEAD = "a head's tokens above the median of its importances"
    HISTOGRAM = "the first half of a layer's tokens, of all heads, by four bits, as the accelerator"


@dataclass(frozen=True, kw_only=True)
class ScorePolicy:
    """Evict the least important token outside sinks and window, for each key/value head or unit.

    Parameters
    ----------
    budget : int
        Tokens cached; the arriving one is attended to beside them.
    sinks : int
        First tokens of the text that are never evicted.
    window : int
        Most recent tokens that are never evicted, the arriving one included.
    source : Source
        What the query heads that share a key/value head add to importance. With `NONE` all
        tokens are equal. The earliest of equals goes.
    prefill : int
        First tokens of the text that all see each other; the cache is cut to its budget when the
        last of them has been seen. 0 evicts as soon as the cache is full.
    unit : Unit
        Who evicts together.
    split : Split
        Which tokens are high scores where bits are refreshed; `HISTOGRAM` needs the accelerator's
        integers.

    Raises
    ------
    ValueError
        If no slot would be left to evict, or the split needs another source.
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
        require(integers, "split by a histogram needs the source INTEGER", self.source)
        least = self.sinks + self.window + 1
        require(self.budget >= least, f"budget must be at least {least}", self.budget)


def full_cache(source: Source = Source.NONE) -> ScorePolicy:
    """Keep every token; importance may be counted to split tokens by it."""
    return ScorePolicy(budget=LONGEST, sinks=0, window=1, source=source)


def streaming_llm(budget: int) -> ScorePolicy:
    """Keep four sinks and the most recent tokens."""
    return ScorePolicy(budget=budget, sinks=STREAMING_SINKS, window=1, source=Source.NONE)


def h2o(budget: int, unit: Unit = Unit.KV_HEAD) -> ScorePolicy:
    """Keep heavy hitters by accumulated probability, and a recent half."""
    return ScorePolicy(budget=budget, sinks=0, window=budget // 2, source=Source.PROB, unit=unit)


def aerp(budget: int, source: Source, prefill: int = 0, split: Split = Split.HEAD) -> ScorePolicy:
    """Keep as Kelle does: ten sinks, a recent half, and the most important others."""
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
    """Evict what most queries of a layer have voted against (VEDA, Figure 3).

    A query head with probabilities s over l tokens votes against those below a/l - b*sigma, or, if
    that is negative, against its smallest. Of tokens with equally many votes the one in the lowest
    slot goes; an arriving token takes the slot that became free.

    Parameters
    ----------
    budget : int
        Tokens cached, at least `reserved`.
    a, b : float
        Weights of mean and standard deviation, not negative.
    reserved : int
        First tokens of the text that do not vote (R).
    fallback : bool
        Whether a negative threshold means one vote, or none.

    Raises
    ------
    ValueError
        If a rule above is broken.
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
    """What a family of policies remembers of a layer while its queries are replayed."""

    def step(self, now: int, alive: Tensor, raw: Tensor, prob: Tensor) -> None:
        """Learn what query `now` gives each token, and evict where the cache is full.

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
        """Tell which of the `alive` tokens are the more important half of their head's."""
        ...


class ScoreReplay:
    """Importance of the tokens of one layer, for lanes that evict by it.

    Parameters
    ----------
    policies : Sequence[ScorePolicy]
        One a lane.
    kv_heads, tokens : int
        Dimensions.
    dtype : torch.dtype
        Of importance.
    shared : int
        Where heads are query heads instead: how many of them share a key/value head.

    Raises
    ------
    ValueError
        If a policy evicts for each query head, and heads are not query heads.
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

        # The first query after which a token goes.
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
        self._histograms = [lane for lane, p in enumerate(policies) if p.split is Split.HISTOGRAM]
        self._exported = torch.zeros(len(policies), kv_heads, tokens, dtype=dtype)
        self._largest = torch.zeros(len(policies), kv_heads, 1, dtype=dtype)

    def step(self, now: int, alive: Tensor, raw: Tensor, prob: Tensor) -> None:
        """Add scores to importance; evict the least important unprotected token."""
        importance = self.importance[..., : now + 1]
        given = torch.where(self._raw, raw.sum(2), prob.sum(2))
        if self._integer.any():
            given = torch.where(self._integer, accelerator_scores(raw).sum(2), given)
        given = given.masked_fill_(~alive, 0).masked_fill_(self._none, 0)
        importance += self._together(given)
        if self._histograms:
            self._export(now, alive)
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
        """Add up scores [lanes, heads, tokens] within each lane's units, and give all the sum."""
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

    def _export(self, now: int, alive: Tensor) -> None:
        """Give the refresh controllers the importances, by the largest ones of earlier steps."""
        importance = self.importance[..., : now + 1]
        self._exported[..., : now + 1] = exported(importance, self._largest)
        folded = torch.where(importance < 0, -importance - 1, importance).masked_fill(~alive, 0)
        self._largest = torch.maximum(self._largest, folded.amax(-1, keepdim=True))

    def important(self, alive: Tensor) -> Tensor:
        """Split as each lane's policy says; the last of the tokens is the one that arrives."""
        importance = self.importance[..., : alive.shape[-1]].masked_fill(~alive, torch.nan)
        high = importance > importance.nanmedian(-1, keepdim=True).values
        for lane in self._histograms:
            high[lane] = _first_half(self._exported[lane, :, : alive.shape[-1]], alive[lane])
        return high


def accelerator_scores(raw: Tensor) -> Tensor:
    """Return what Kelle's evictor adds for scores: Q6.10 in base 2, less the bits that it drops."""
    scores = (raw * (math.log2(math.e) * (1 << SCORE_FRACTION))).round()
    limit = 1 << SCORE_BITS - 1
    return (scores.clamp(-limit, limit - 1) / (1 << SCORE_SHIFT)).floor()


def exported(importance: Tensor, largest: Tensor) -> Tensor:
    """Return the upper bits of integers as offset binary, scaled by the largest magnitude so far.

    `golden.kelle.eviction.slot_table.export_score` on tensors.
    """
    shift = (torch.frexp(largest).exponent + 1 - EXPORTED_BITS).clamp(min=0)
    top = 1 << EXPORTED_BITS
    return (torch.ldexp(importance, -shift).floor() + top // 2).clamp(0, top - 1)


def _first_half(scores: Tensor, alive: Tensor) -> Tensor:
    """Return the better half of stored tokens [heads, tokens]; of equal scores the first ones."""
    stored = alive.clone()
    # The arriving token's key and value are not stored yet.
    stored[:, -1] = False
    ranked = scores.masked_fill(~stored, -1).flatten().sort(descending=True, stable=True).indices
    high = torch.zeros(alive.numel(), dtype=torch.bool)
    high[ranked[: (int(stored.sum()) + 1) // 2]] = True
    return high.view_as(alive)


def _keep_best(policy: ScorePolicy, importance: Tensor, alive: Tensor) -> None:
    """Cut a prefilled cache [key/value heads, tokens] to its budget; earlier equals stay."""
    count = alive.shape[-1]
    others = slice(policy.sinks, count - policy.window)
    chosen = importance[:, others].sort(dim=-1, descending=True, stable=True).indices
    dropped = chosen[:, policy.budget - policy.sinks - policy.window :]
    alive[:, others].scatter_(-1, dropped, False)


class VotingReplay:
    """Votes against the tokens of one layer, for lanes that evict by them.

    Parameters
    ----------
    policies : Sequence[VotingPolicy]
        One a lane.
    tokens : int
        Length of the text.
    dtype : torch.dtype
        Of thresholds.

    Members
    -------
    counts, slots : Tensor
        int64 [lanes, tokens], votes against each token, and where it is or was.
    fallbacks, voters : int
        Query heads whose threshold was negative, and all that voted.
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
        """Count the votes of every query head; evict the token with most."""
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
        """Refuse: votes rank what to drop, not what to protect."""
        raise NotImplementedError("tokens are split by importance scores, and votes are none")
