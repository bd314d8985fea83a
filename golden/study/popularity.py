"""Popular tokens: those that most heads keep (Kelle, Sections 4.1.2 and 8.3.2)."""

from collections.abc import Sequence

import numpy as np

from golden.policies.cache import Cache
from golden.policies.protocol import Query
from golden.policies.scores import ScorePolicy
from golden.study.attention import Observer
from hdl.parameters import require


class Popularity(Observer):
    """An observer of `ReplayedAttention` with one lane.

    Parameters
    ----------
    policy : ScorePolicy
        The lane's policy, with a prefill.
    heads : int
        Number of KV heads; a token is popular if more than half of them keep it.
    later : Sequence[int]
        Numbers of decode steps after which popularity is measured again.

    Members
    -------
    free : int
        Number of tokens that a head can select.
    popular : float
        Mean number of popular tokens per layer.
    """

    def __init__(self, policy: ScorePolicy, heads: int, later: Sequence[int]) -> None:
        require(policy.prefill > policy.budget, "prefill must exceed budget", policy.prefill)
        self.free = policy.budget - policy.sinks - policy.window
        self._chosen = slice(policy.sinks, policy.prefill - policy.window)
        self._first = policy.prefill - 1
        self._heads = heads
        self._counts: dict[int, list[int]] = {0: [], **{steps: [] for steps in later}}
        self._popular = np.zeros(0, bool)

    def stepped(self, layer: int, query: Query, cache: Cache) -> None:
        """Record the tokens that the heads keep after a query."""
        steps = query.now - self._first
        if steps not in self._counts:
            return
        alive = np.zeros((self._heads, query.now + 1), bool)
        for head, (positions, kept) in enumerate(
            zip(cache.positions[0], cache.kept()[0], strict=True)
        ):
            alive[head, positions[kept].numpy()] = True
        kept_by_most = 2 * alive[:, self._chosen].sum(0) > self._heads
        if steps == 0:
            self._popular = kept_by_most
        self._counts[steps].append(int((kept_by_most & self._popular).sum()))

    @property
    def popular(self) -> float:
        """Mean number of popular tokens per layer."""
        return float(np.mean(self._counts[0]))

    def shares(self) -> dict[int, float]:
        """Return the share of tokens that remain popular, by decode steps, over all layers."""
        total = sum(self._counts[0])
        return {steps: sum(kept) / total for steps, kept in self._counts.items() if steps}
