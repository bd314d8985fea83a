"""A sample of a pass: one cache of one layer, held against other forms of its policy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.policies.agreement import NOTHING, Agreement, attended, compare
from golden.policies.cache import Cache
from golden.policies.plain import attended_plainly
from golden.policies.protocol import Query
from golden.study.attention import Observer
from hdl.errors import UserError

LEAST, BEYOND, MOST = 512, 256, 1280
"""Tokens of a sample: at least, beyond the budget, and at most."""


@dataclass(frozen=True)
class Checked:
    """A sample's comparisons.

    Parameters
    ----------
    double : Agreement
        The fast form in float64 against the second source in float64.
    single : Agreement
        The pass itself, in float32, against the second source.
    exact : Agreement
        The pass against the bit-exact form; without evictions if there is none.
    """

    double: Agreement
    single: Agreement
    exact: Agreement

    def require_equal(self, name: str) -> None:
        """Refuse a policy whose fast form in float64 decides otherwise than its second source.

        Raises
        ------
        UserError
            With the name of the policy and the number of differing evictions.
        """
        if not self.double.equal:
            raise UserError(
                f"the fast form of {name} must decide as its second source in float64, not "
                f"differ in {self.double.evictions - self.double.same} of "
                f"{self.double.evictions} evictions of a cache"
            )


class Sample(Observer):
    """Record the scores and the decisions of one cache of a pass with one lane.

    Parameters
    ----------
    policy : Any
        The policy.
    layer, cache : int
        The layer, and the cache of the layer, modulo its number of caches.
    tokens : int
        Maximum length of the text.
    """

    def __init__(self, policy: Any, layer: int, cache: int, tokens: int) -> None:
        self._policy = policy
        self._layer, self._cache = layer, cache
        self.tokens = min(tokens, max(LEAST, policy.budget + BEYOND), MOST)
        self._blocks: list[NDArray[np.float32]] = []
        self._attended: list[NDArray[np.int64]] = []

    def scores(self, layer: int, rows: slice, raw: Tensor) -> None:
        """Keep a block of scores of the layer."""
        if layer == self._layer and rows.start < self.tokens:
            block = np.full((raw.shape[1], raw.shape[2], self.tokens), -np.inf, np.float32)
            stop = min(rows.stop, self.tokens)
            block[..., :stop] = raw[0, ..., :stop].numpy()
            self._blocks.append(block)

    def stepped(self, layer: int, query: Query, cache: Cache) -> None:
        """Keep the positions that a query of the layer attends to."""
        if layer == self._layer and query.now < self.tokens:
            positions = query.positions[0]
            self._attended.append(np.sort(positions[self._cache % len(positions)].numpy()))
            self._caches = len(positions)

    def check(self) -> Checked:
        """Compare the forms of the policy on the recorded scores, of `tokens` queries or fewer."""
        scores = np.concatenate(self._blocks, axis=1)[:, : self.tokens]
        scores = scores[..., : scores.shape[1]]
        scores = np.split(scores, self._caches)[self._cache % self._caches]
        policy = self._policy
        other = getattr(policy, "second_source", None)
        second = list(other(scores) if other else attended_plainly(policy, scores))
        exact_form = getattr(policy, "exact_form", None)
        exact = exact_form(scores) if exact_form else None
        return Checked(
            double=compare(attended(policy, scores, torch.float64), second),
            single=compare(self._attended, second),
            exact=NOTHING if exact is None else compare(self._attended, exact),
        )
