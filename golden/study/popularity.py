"""Popular tokens: those that most heads keep (Kelle, Sections 4.1.2 and 8.3.2)."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from golden.study.policies import ScorePolicy
from hdl.parameters import require


class Popularity:
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

    def __call__(self, layer: int, now: int, alive: Tensor) -> None:
        """Record the tokens that the heads keep after query `now`."""
        steps = now - self._first
        if steps not in self._counts:
            return
        kept = 2 * alive[0, :, self._chosen].sum(0).numpy() > self._heads
        if steps == 0:
            self._popular = kept
        self._counts[steps].append(int((kept & self._popular).sum()))

    @property
    def popular(self) -> float:
        """Mean number of popular tokens per layer."""
        return float(np.mean(self._counts[0]))

    def shares(self) -> dict[int, float]:
        """Return the share of tokens that remain popular, by decode steps, over all layers."""
        total = sum(self._counts[0])
        return {steps: sum(kept) / total for steps, kept in self._counts.items() if steps}
