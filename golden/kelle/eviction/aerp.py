"""AERP, Kelle's attention-based eviction policy (Section 4.1), for one key/value head.

Three models of one policy: real-valued importance from raw scores or from probabilities, and the
integers of the systolic evictor. They differ only in how importance is accumulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.head_scores import HeadScores
from golden.kelle.eviction.systolic_evictor import (
    Flags,
    Integers,
    accumulate_heads,
    less_mean,
    quantise_scores,
)
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from hdl.parameters import require, require_range

Reals = NDArray[np.float64]
EMPTY = -1
"""Position of a slot that holds no token."""


@dataclass(frozen=True, kw_only=True)
class AerpParameters:
    """Token budget of a head, and the tokens that may not be evicted.

    Parameters
    ----------
    budget : int
        Cached tokens per head (N').
    window : int
        Number of most recent tokens that are never evicted, the arriving one included (W).
    sinks : int
        Number of first tokens of the text that are never evicted.

    Raises
    ------
    ValueError
        If no slot could be evicted.
    """

    budget: int
    window: int
    sinks: int = 10

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("budget", self.budget, 1, 4096)
        require_range("window", self.window, 1, self.budget)
        require_range("sinks", self.sinks, 0, self.budget)
        require(
            self.budget >= self.sinks + self.window + 1,
            f"budget must be at least sinks + window + 1 = {self.sinks + self.window + 1}",
            self.budget,
        )

    def protects(self, positions: Integers, now: int) -> Flags:
        """Return a flag for each cached position that is protected when token `now` arrives."""
        return (positions < self.sinks) | (positions > now - self.window)

    def survivors(self, importance: NDArray) -> Integers:
        """Return the positions to keep of a prefilled text: sinks, window, and the best others.

        Ties resolve to the earlier position. A text within the budget is kept as a whole.
        """
        count = len(importance)
        if count <= self.budget:
            return np.arange(count)
        positions = np.arange(count)
        fixed = (positions < self.sinks) | (positions >= count - self.window)
        others = positions[~fixed]
        best = others[np.argsort(-importance[others], kind="stable")]
        chosen = best[: self.budget - self.sinks - self.window]
        return np.sort(np.concatenate([positions[fixed], chosen]))


class Importance(Protocol):
    """Accumulation of scores to importance, the only difference between the models."""

    halves: bool
    """Whether a step halves the importances of a head if the previous step saturated one."""

    def add(self, importance: NDArray, scores: Reals) -> tuple[NDArray, Flags]:
        """Add the scores of every query head, of shape (heads, tokens), to importances.

        Returns
        -------
        tuple[numpy.ndarray, numpy.ndarray]
            The new importances, and where they were saturated.
        """
        ...


class RealImportance:
    """The reference: importance is the sum of scores, in float64."""

    halves = False

    def add(self, importance: NDArray, scores: Reals) -> tuple[NDArray, Flags]:
        """Add the scores of every query head."""
        return importance + scores.sum(axis=0), np.zeros(importance.shape, bool)


class IntegerImportance:
    """The evictor's arithmetic, query head by query head.

    Parameters
    ----------
    parameters : SystolicEvictorParameters
        Widths, shift, saturation.
    """

    def __init__(self, parameters: SystolicEvictorParameters) -> None:
        self.parameters = parameters
        self.halves = parameters.halves

    def add(self, importance: NDArray, scores: Reals) -> tuple[NDArray, Flags]:
        """Add the scores of every query head; a token saturates if one of its sums does."""
        return accumulate_heads(
            importance, quantise_scores(scores, self.parameters), self.parameters
        )


@dataclass(frozen=True)
class DecodeStep:
    """One decode step of one key/value head: inputs and results of the evictor.

    Parameters
    ----------
    now : int
        Position of the arriving token.
    positions : numpy.ndarray
        int64 [budget], position of the token in each slot before the step, or `EMPTY`.
    protect : numpy.ndarray
        bool [budget].
    scores : numpy.ndarray
        float64 [heads, budget], score of each slot's token for each query head.
    own_scores : numpy.ndarray
        float64 [heads], score of the arriving token for each query head.
    importance : numpy.ndarray
        [budget] before the step.
    halve : bool
        Whether the step halves importance before it adds.
    updated : numpy.ndarray
        [budget] importance with this step's scores.
    victim : int
        Slot of the least important unprotected token; valid only when the cache is full.
    slot : int
        Slot of the arriving token.
    own : float
        Importance of the arriving token.
    """

    now: int
    positions: Integers
    protect: Flags
    scores: Reals
    own_scores: Reals
    importance: NDArray
    halve: bool
    updated: NDArray
    victim: int
    slot: int
    own: float


def replay(
    scores: Reals,
    policy: AerpParameters,
    *,
    first: int,
    steps: int,
    source: ScoreSource,
    evictor: SystolicEvictorParameters | None = None,
    centre: HeadScores | None = None,
) -> Iterator[DecodeStep]:
    """Run the policy over a captured text, score first, then evict.

    Parameters
    ----------
    scores : numpy.ndarray
        float [heads, tokens, tokens], raw scores of the query heads that share the key/value head;
        row n has the scores of query n for each key, minus infinity above the diagonal.
    policy : AerpParameters
        Budget, window, sinks.
    first : int
        Tokens prefilled before the first decode step.
    steps : int
        Decode steps.
    source : ScoreSource
        Whether raw scores or probabilities over the cached tokens are accumulated.
    evictor : SystolicEvictorParameters, optional
        Accumulate with the arithmetic of this evictor; by default in float64.
    centre : HeadScores, optional
        The head's tracked median, from which an arriving token's importance starts; requires an
        evictor. By default it starts from zero.

    Yields
    ------
    DecodeStep
        One per decoded token.

    Raises
    ------
    ValueError
        If the text is shorter than prefill and steps together.
    """
    heads, tokens, _ = scores.shape
    require(first + steps <= tokens, f"prefill and steps must be at most {tokens}", first + steps)
    arithmetic: Importance = IntegerImportance(evictor) if evictor else RealImportance()

    # A prefill never halves: the selector adds up each token's sum in one pass, and clamps it.
    total: NDArray[Any] = np.zeros(first, np.int64 if evictor else np.float64)
    for query in range(first):
        seen = slice(0, query + 1)
        given = contributions(scores[:, query, seen], source)
        if evictor and centre:
            whole = less_mean(quantise_scores(given, evictor), evictor)
            total[seen], _saturated = accumulate_heads(total[seen], whole, evictor)
        else:
            total[seen], _saturated = arithmetic.add(total[seen], given)
    kept = policy.survivors(total)
    positions = np.full(policy.budget, EMPTY)
    positions[: len(kept)] = kept
    importance = np.zeros(policy.budget, total.dtype)
    importance[: len(kept)] = total[kept]
    halve = False

    for now in range(first, first + steps):
        valid = positions != EMPTY
        protect = policy.protects(positions, now)
        raw = np.full((heads, policy.budget + 1), -np.inf)
        raw[:, :-1][:, valid] = scores[:, now, positions[valid]]
        raw[:, -1] = scores[:, now, now]
        given = contributions(raw, source)
        given[:, :-1][:, ~valid] = 0.0
        start = importance // 2 if halve else importance
        updated, saturated = arithmetic.add(start, given[:, :-1])
        candidates = np.flatnonzero(valid & ~protect)
        victim = int(candidates[np.argmin(updated[candidates])]) if len(candidates) else 0
        slot = victim if valid.all() else int(np.flatnonzero(~valid)[0])
        begun = np.full(1, centre.centre if centre else 0, total.dtype)
        own, _saturated = arithmetic.add(begun, given[:, -1:])
        if centre:
            centre.learn(updated[valid])
        yield DecodeStep(
            now=now,
            positions=positions.copy(),
            protect=protect,
            scores=given[:, :-1],
            own_scores=given[:, -1],
            importance=importance,
            halve=halve,
            updated=updated,
            victim=victim,
            slot=slot,
            own=own[0].item(),
        )
        importance = updated.copy()
        positions[slot], importance[slot] = now, own[0]
        halve = arithmetic.halves and bool(np.any(saturated & valid))


def contributions(raw: Reals, source: ScoreSource) -> Reals:
    """Return a query's contribution to the importance of each token that it attends to.

    Parameters
    ----------
    raw : numpy.ndarray
        float [..., tokens], raw scores; minus infinity for an empty slot.
    source : ScoreSource
        Whether the contributions are the raw scores, or the probabilities over these tokens.
    """
    raw = np.asarray(raw, np.float64)
    if source is ScoreSource.RAW:
        return raw.copy()
    weights = np.exp(raw - raw.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
