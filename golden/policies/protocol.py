"""The protocol of a cache policy, and a base class with the usual members.

A cache holds tokens in slots. A query attends to all cached tokens and to itself; then the policy
updates the importance of each slot, and the cache evicts the least important token that is not
protected. A policy sees all caches of a layer and all lanes (sequences) at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.policies.plain import attended_plainly
from hdl.parameters import require_choice, require_range

LONGEST = 1 << 20
"""Upper limit of a budget; a cache of this size never evicts."""

Attended = Iterator[NDArray[np.int64]]
"""For each query, the positions that it attends to, ascending, its own included."""


class Unit(Enum):
    """The heads that share a cache: their scores are added, and they evict the same token."""

    QUERY_HEAD = "query head"
    KV_HEAD = "key/value head"
    LAYER = "layer"

    def caches(self, heads: int, kv_heads: int) -> int:
        """Return the number of caches of a layer."""
        return {Unit.QUERY_HEAD: heads, Unit.KV_HEAD: kv_heads, Unit.LAYER: 1}[self]


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The unit that implements a policy, and what selects its rule.

    Parameters
    ----------
    unit : str
        Name of the unit: of the catalog, or of an installed package.
    settings : Mapping[str, object]
        Parameters of the unit that select the rule, by the names that `SET` has.
    accelerator : Mapping[str, str]
        Variables of `make generate` for an accelerator that evicts by the policy; empty if there
        is none.
    """

    unit: str
    settings: Mapping[str, object] = field(default_factory=dict)
    accelerator: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Query:
    """One query of a layer, in every lane and cache. Each slot holds a token.

    Parameters
    ----------
    now : int
        Position of the query in the text.
    positions : Tensor
        int64 [lanes, caches, slots], position of the token in each slot; one of them is `now`.
    raw, prob : Tensor
        [lanes, caches, query heads of a cache, slots], scores before the softmax and probabilities.
    """

    now: int
    positions: Tensor
    raw: Tensor
    prob: Tensor


@runtime_checkable
class CachePolicy(Protocol):
    """What the cache calls; `Policy` has defaults of most members. A policy is a frozen dataclass.

    Members
    -------
    moves : bool
        Whether an arriving token moves to the slot of the token that it evicts. Otherwise it takes
        the slot that the previous eviction has left.
    """

    moves: ClassVar[bool]

    @property
    def budget(self) -> int:
        """Number of tokens that a cache holds between two queries."""
        ...

    @property
    def prefill(self) -> int:
        """Number of first tokens that attend to each other without eviction.

        After the last of them the cache is trimmed to its budget. With 0, eviction begins when the
        cache is full.
        """
        ...

    @property
    def unit(self) -> Unit:
        """Heads that share a cache."""
        ...

    def begin(self, lanes: int, caches: int, tokens: int) -> "CachePolicy":
        """Return the policy that processes one layer; a new object if it has a state of its own."""
        ...

    def score(self, importance: Tensor, query: Query) -> Tensor:
        """Return the importance of each slot after a query.

        Parameters
        ----------
        importance : Tensor
            float64 [lanes, caches, slots], before the query; 0 for the arriving token.
        query : Query
            The query.
        """
        ...

    def protect(self, query: Query) -> Tensor:
        """Return the slots that may not be evicted, bool [lanes, caches, slots]."""
        ...

    def evict(self, importance: Tensor, protected: Tensor) -> Tensor:
        """Return the slot to evict, int64 [lanes, caches, 1]."""
        ...

    def trim(self, importance: Tensor, protected: Tensor) -> Tensor:
        """Return the slots to keep, int64 [lanes, caches, budget], ascending."""
        ...


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy that evicts the least important token; ties resolve to the lowest slot.

    A subclass defines `score`, and what else differs.

    Parameters
    ----------
    budget : int
        Number of tokens that a cache holds between two queries.
    prefill : int
        Number of first tokens that attend to each other; 0 for none.
    unit : Unit
        Heads that share a cache.

    Members
    -------
    exact : str or None
        Full name of the bit-exact model of the rule, if there is one.
    hardware : Hardware or None
        The unit that implements the rule, if there is one.

    Raises
    ------
    ValueError
        If a value is not legal.
    """

    budget: int = 128
    prefill: int = 0
    unit: Unit = Unit.KV_HEAD
    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("budget", self.budget, 1, LONGEST)
        require_range("prefill", self.prefill, 0, LONGEST)
        require_choice("unit", self.unit, list(Unit))

    @property
    def exact(self) -> str | None:
        """Full name of the bit-exact model of the rule."""
        return None

    @property
    def hardware(self) -> Hardware | None:
        """The unit that implements the rule."""
        return None

    def begin(self, lanes: int, caches: int, tokens: int) -> "Policy":
        """Return the policy itself, which has no state."""
        return self

    def score(self, importance: Tensor, query: Query) -> Tensor:
        """Return the importance of each slot after a query."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def protect(self, query: Query) -> Tensor:
        """Protect no slot."""
        return torch.zeros_like(query.positions, dtype=torch.bool)

    def evict(self, importance: Tensor, protected: Tensor) -> Tensor:
        """Return the least important slot without protection."""
        return importance.masked_fill(protected, torch.inf).argmin(-1, keepdim=True)

    def trim(self, importance: Tensor, protected: Tensor) -> Tensor:
        """Return what remains after one eviction after the other."""
        order = importance.masked_fill(protected, torch.inf).sort(dim=-1, stable=True).indices
        return order[..., importance.shape[-1] - self.budget :].sort(-1).values

    def second_source(self, scores: NDArray[np.floating]) -> Attended:
        """Run the rule in float64, one query at a time, on the scores of one cache.

        A policy with an independent model in numpy overrides this method. The default calls the
        policy's own members, so that it checks the cache and not the rule.

        Parameters
        ----------
        scores : numpy.ndarray
            [query heads of a cache, tokens, tokens], scores before the softmax; row n has the
            scores of query n.
        """
        return attended_plainly(self, scores)

    def exact_form(self, scores: NDArray[np.floating]) -> Attended | None:
        """Run the bit-exact model that `exact` names on the scores of one cache."""
        return None
