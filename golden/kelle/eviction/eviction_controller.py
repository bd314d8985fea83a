"""Bit-exact model of the eviction controller: the policy AERP for all heads of a layer.

`golden.kelle.eviction.aerp` models eviction only. This model adds the option to evict before the
attention, the recomputation of popular tokens, the coarse scores, and the records of the slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from golden.kelle.eviction.aerp import EMPTY, AerpParameters
from golden.kelle.eviction.head_scores import HeadScores
from golden.kelle.eviction.systolic_evictor import Integers, accumulate_heads
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.parameters import require

KEPT = -1
"""Value in `recomputed` of a slot whose key and value are stored."""
ScoreUpdate = tuple[int, int, int]
"""Entry, score, valid."""


@dataclass(frozen=True)
class Placement:
    """Placement of the arriving token in a head.

    Parameters
    ----------
    head, slot : int
        Head, and slot of the arriving token in it.
    evicted : int
        Position of the evicted token, or `EMPTY`.
    vector : int
        The vector from which the evicted token was recomputed, or `KEPT`.
    """

    head: int
    slot: int
    evicted: int
    vector: int


@dataclass
class Head:
    """The slots of one head."""

    positions: Integers
    importance: Integers
    recomputed: Integers
    scores: HeadScores
    start: int = 0
    filled: int = 0
    halve: bool = False
    victim: int = 0
    found: bool = False
    important: bool = False


@dataclass
class Step:
    """Results of a decode step or a prefill."""

    placements: list[Placement] = field(default_factory=list)
    store: tuple[int, int] | None = None
    score_updates: list[ScoreUpdate] = field(default_factory=list)


class EvictionModel:
    """All heads of a layer.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.
    layer : int
        Index of the layer among the cached layers.

    Members
    -------
    heads : list[Head]
        Slots of each head.
    vectors : list[tuple[int, set[int]] | None]
        For each stored input vector its token's position and the heads that keep it.
    no_victim : bool
        A full head had no candidate to evict.
    """

    def __init__(self, parameters: EvictionParameters, layer: int = 0) -> None:
        self.parameters = p = parameters
        self.layer = layer
        slots = p.evictor.slots
        self.policy = AerpParameters(budget=slots, window=p.window, sinks=p.sinks)
        self.no_victim = False
        self._empty()

    def _empty(self) -> None:
        """Empty all slots, and free all vectors."""
        p, slots = self.parameters, self.parameters.evictor.slots
        self.heads = [
            Head(
                np.full(slots, EMPTY),
                np.zeros(slots, np.int64),
                np.full(slots, KEPT),
                HeadScores(p),
            )
            for _ in range(p.kv_heads)
        ]
        self.vectors: list[tuple[int, set[int]] | None] = [None] * p.vectors
        self.promoted: tuple[int, int] | None = None

    def clear(self) -> list[ScoreUpdate]:
        """End the text; slots become free from the last one of a head on."""
        score_updates = [
            (self._first(number) + slot, 0, 0)
            for number, head in enumerate(self.heads)
            for slot in reversed(range(head.filled))
            if self.stored(number)
        ]
        for vector, owner in enumerate(self.vectors):
            if owner is not None:
                score_updates += self._vector_updates(vector, False)
        self._empty()
        return score_updates

    def stored(self, head: int) -> bool:
        """Return whether a head's slots have entries in the eDRAM, rather than off-chip memory."""
        p = self.parameters
        return self.layer * p.kv_heads + head < p.stored_heads

    def prefill(
        self, head: int, position: int, importance: int, vector: int = KEPT
    ) -> list[ScoreUpdate]:
        """Store a prefilled token, with the highest coarse score until its first score."""
        p, h = self.parameters, self.heads[head]
        slot = h.filled
        h.positions[slot], h.importance[slot], h.recomputed[slot] = position, importance, vector
        h.filled += 1
        top = (1 << p.score_bits) - 1
        score_updates = [(self._first(head) + slot, top, int(vector == KEPT))]
        score_updates = score_updates if self.stored(head) else []
        if vector != KEPT:
            owner = self.vectors[vector]
            if owner is None:
                owner = self.vectors[vector] = (position, set())
                score_updates += self._vector_updates(vector, True)
            owner[1].add(head)
        return score_updates

    def search(
        self, head: int, scores: Integers, now: int, fresh: int | None = None
    ) -> list[ScoreUpdate]:
        """Add scores [query heads, slots] to importance, and find the victim for step `now`."""
        p, h = self.parameters, self.heads[head]
        used = h.positions != EMPTY
        resident = used.copy()
        if fresh is not None:
            resident[fresh] = False
        start = np.where(resident, h.importance >> int(h.halve), 0)
        total, saturated = accumulate_heads(start, scores, p.evictor)
        h.importance = np.where(used, total, h.importance)
        h.halve = p.evictor.halves and bool(np.any(saturated & resident))
        protect = self.policy.protects(h.positions, now)
        candidates = np.flatnonzero(resident & ~protect)
        h.found = len(candidates) > 0
        # Illegal positions may protect all tokens: the last slot is then evicted.
        h.victim = len(used) - 1
        if h.found:
            h.victim = int(candidates[np.argmin(h.importance[candidates])])
        if self.promoted is not None:
            h.recomputed[resident & (h.positions == self.promoted[0])] = self.promoted[1]
        coarse = h.scores.coarse(h.importance)
        h.start = h.scores.centre if p.centred else 0
        h.scores.learn(h.importance[used])
        # The leaving token's score is compared with the mean of all tokens that may be evicted.
        evictable = coarse[candidates]
        leaving = evictable[h.positions[candidates] == now - p.window]
        h.important = bool(np.any(leaving * len(evictable) >= evictable.sum()))
        first = self._first(head)
        return [
            (first + int(slot), int(coarse[slot]), int(h.recomputed[slot] == KEPT))
            for slot in np.flatnonzero(used & self.stored(head))
        ]

    def own(self, head: int, slot: int, scores: Integers) -> list[ScoreUpdate]:
        """Set the arriving token's importance to the start and its own scores [query heads].

        The token has the highest coarse score until its first search.
        """
        p, h = self.parameters, self.heads[head]
        total, _saturated = accumulate_heads(np.array([h.start]), scores[:, np.newaxis], p.evictor)
        h.importance[slot] = total[0]
        update = (self._first(head) + slot, (1 << p.score_bits) - 1, 1)
        return [update] if self.stored(head) else []

    def place(self, now: int, head: int) -> tuple[Placement, list[ScoreUpdate]]:
        """Assign a slot of a head to the arriving token."""
        h = self.heads[head]
        full = h.filled == len(h.positions)
        self.no_victim |= full and not h.found
        slot = h.victim if full else h.filled
        h.filled += not full
        evicted, vector = int(h.positions[slot]), int(h.recomputed[slot])
        h.positions[slot], h.recomputed[slot] = now, KEPT
        score_updates: list[ScoreUpdate] = []
        if vector != KEPT:
            owner = self.vectors[vector]
            assert owner is not None and owner[0] == evicted
            owner[1].discard(head)
            if not owner[1]:
                self.vectors[vector] = None
                score_updates = self._vector_updates(vector, False)
        return Placement(head, slot, evicted, vector), score_updates

    def decide(self, now: int, placements: Sequence[Placement]) -> Step:
        """Decide whether the leaving token is popular, after all heads have placed the new one."""
        p = self.parameters
        step = Step(placements=list(placements))
        leaving = now - p.window
        keepers = {place.head for place in placements if place.evicted != leaving}
        matters = sum(self.heads[head].important for head in keepers)
        self.promoted = None
        if leaving >= p.sinks and matters > p.popular_heads and None in self.vectors:
            vector = self.vectors.index(None)
            self.vectors[vector] = (leaving, keepers)
            self.promoted = step.store = (leaving, vector)
            step.score_updates = self._vector_updates(vector, True)
        return step

    def _first(self, head: int) -> int:
        """Return the first entry of a head's slots."""
        p = self.parameters
        return (self.layer * p.kv_heads + head) * p.evictor.slots

    def _vector_updates(self, vector: int, valid: bool) -> list[ScoreUpdate]:
        p = self.parameters
        number = self.layer * p.vectors + vector
        first = p.stored_heads * p.evictor.slots + number * p.vector_entries
        top = (1 << p.score_bits) - 1
        return [(first + i, top, int(valid)) for i in range(p.vector_entries)]


def popular_tokens(kept: Sequence[Integers], above: int, p: AerpParameters, count: int) -> Integers:
    """Return the positions that more than `above` heads keep of a prefilled text.

    The recent window is excluded: its tokens are decided on when they have left it.

    Raises
    ------
    ValueError
        If there is no head.
    """
    require(len(kept) > 0, "heads must be at least 1", len(kept))
    votes = np.bincount(np.concatenate(kept), minlength=count)
    positions = np.flatnonzero(votes > above)
    return positions[positions < count - p.window]
