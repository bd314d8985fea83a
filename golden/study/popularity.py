"""Which tokens many heads keep of a prefill, and for how long (Kelle, Sections 4.1.2 and 8.3.2)."""

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
        Key/value heads; more than half of them make a token popular.
    later : Sequence[int]
        Decode steps after which to look again.

    Members
    -------
    free : int
        Tokens a head may choose.
    popular : float
        Popular tokens a layer, on average.
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
        """Look at the tokens that the heads keep after query `now`."""
        steps = now - self._first
        if steps not in self._counts:
            return
        kept = 2 * alive[0, :, self._chosen].sum(0).numpy() > self._heads
        if steps == 0:
            self._popular = kept
        self._counts[steps].append(int((kept & self._popular).sum()))

    @property
    def popular(self) -> float:
        """Popular tokens a layer."""
        return float(np.mean(self._counts[0]))

    def shares(self) -> dict[int, float]:
        """Return the share that is still popular, by decode steps, over all layers."""
        total = sum(self._counts[0])
        return {steps: sum(kept) / total for steps, kept in self._counts.items() if steps}
