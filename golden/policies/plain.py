"""A policy executed with lists and float64, one query at a time: no slots, blocks or lanes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from golden.policies.protocol import CachePolicy


def attended_plainly(
    policy: "CachePolicy", scores: NDArray[np.floating]
) -> Iterator[NDArray[np.int64]]:
    """Yield the positions that each query attends to, ascending.

    Parameters
    ----------
    policy : CachePolicy
        The policy; its members process one lane with one cache.
    scores : numpy.ndarray
        [query heads, tokens, tokens], scores before the softmax.
    """
    from golden.policies.protocol import Query

    tokens = scores.shape[1]
    rule = policy.begin(1, 1, tokens)
    cached: list[int] = []
    importance: list[float] = []
    free: int | None = None
    for now in range(tokens):
        if free is None:
            cached.append(now)
            importance.append(0.0)
        else:
            cached[free], importance[free] = now, 0.0
        yield np.sort(np.array(cached))
        raw = np.asarray(scores[:, now, cached], np.float64)
        powers = np.exp(raw - raw.max(1, keepdims=True))
        prob = powers / powers.sum(1, keepdims=True)
        query = Query(
            now, *(torch.from_numpy(a)[None, None] for a in (np.array(cached), raw, prob))
        )
        updated = rule.score(torch.tensor(importance, dtype=torch.float64)[None, None], query)
        importance = updated[0, 0].tolist()
        if now + 1 < policy.prefill or len(cached) <= policy.budget:
            continue
        protected = rule.protect(query)
        if now + 1 == policy.prefill:
            kept = rule.trim(updated, protected)[0, 0].tolist()
            cached, importance = [cached[n] for n in kept], [importance[n] for n in kept]
            continue
        victim = int(rule.evict(updated, protected))
        free = victim
        if policy.moves:
            own = cached.index(now)
            cached[victim], importance[victim] = now, importance[own]
            free = own
