"""The cache of one layer under one policy: its slots, its arrivals and its evictions."""

import torch
from torch import Tensor

from golden.policies.protocol import CachePolicy, Query


class Cache:
    """Slots of every lane and cache of a layer during the replay of its queries.

    All caches hold equally many tokens at any time, so that slots are dense and need no mask.

    Parameters
    ----------
    policy : CachePolicy
        The policy.
    lanes, caches : int
        Number of sequences, and of caches of the layer.
    tokens : int
        Length of the text.

    Members
    -------
    policy : CachePolicy
        The policy for this layer, with its state.
    positions : Tensor
        int64 [lanes, caches, slots], token of each slot; the used ones are views of it.
    in_order : bool
        Whether slot n holds token n.
    """

    def __init__(self, policy: CachePolicy, lanes: int, caches: int, tokens: int) -> None:
        self.policy = policy.begin(lanes, caches, tokens)
        size = min(max(policy.budget + 1, policy.prefill), tokens)
        self._positions = torch.zeros(lanes, caches, size, dtype=torch.int64)
        self._importance = torch.zeros(lanes, caches, size, dtype=torch.float64)
        self._used = 0
        self._victim: Tensor | None = None
        self.in_order = True

    @property
    def positions(self) -> Tensor:
        """Token of each used slot."""
        return self._positions[..., : self._used]

    @property
    def importance(self) -> Tensor:
        """Importance of each used slot, float64."""
        return self._importance[..., : self._used]

    def arrive(self, now: int) -> Tensor:
        """Store the token `now`; return the positions that its query attends to.

        They are a view, which is valid until the next arrival.
        """
        place = self._victim
        if place is None:
            place = torch.full((*self._positions.shape[:2], 1), self._used)
            self._used += 1
        elif self.policy.moves:
            # The token that arrived last is in the last slot; it moves to its victim's.
            own = slice(self._used - 1, self._used)
            for stored in (self._positions, self._importance):
                stored.scatter_(-1, place, stored[..., own].clone())
            place = torch.full_like(place, self._used - 1)
        self._positions.scatter_(-1, place, now)
        self._importance.scatter_(-1, place, 0)
        self._victim = None
        return self.positions

    def step(self, query: Query) -> None:
        """Update the importance of all slots; trim or evict if more than the budget is cached."""
        rule = self.policy
        importance = rule.score(self.importance, query)
        self._importance[..., : self._used] = importance
        if query.now + 1 < rule.prefill or self._used <= rule.budget:
            return
        protected = rule.protect(query)
        self.in_order = False
        if query.now + 1 == rule.prefill:
            kept = rule.trim(importance, protected)
            self._used = rule.budget
            # New tensors, since the query has a view of the old positions.
            self._positions, self._importance = (
                torch.zeros_like(stored).index_copy(
                    -1, torch.arange(self._used), stored.gather(-1, kept)
                )
                for stored in (self._positions, self._importance)
            )
        else:
            self._victim = rule.evict(importance, protected)

    def kept(self) -> Tensor:
        """Return the used slots that hold a token after the step, bool [lanes, caches, slots]."""
        kept = torch.ones_like(self.positions, dtype=torch.bool)
        return kept if self._victim is None else kept.scatter_(-1, self._victim, False)
