"""Bit-exact model of the prefill selector: what each head keeps of a text, and what is recomputed.

Section 4.1 of the paper: importance is summed over all queries of the text; the sinks, the recent
window and the best others are kept; what many heads keep is stored as an input vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golden.kelle.eviction.aerp import AerpParameters
from golden.kelle.eviction.eviction_controller import KEPT, popular_tokens
from golden.kelle.eviction.systolic_evictor import Integers, accumulate
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters


@dataclass(frozen=True)
class Kept:
    """A token that a head keeps.

    Parameters
    ----------
    head, position, importance : int
        Whose, which, and how important.
    vector : int
        The input vector that it is recomputed from, or `KEPT`.
    """

    head: int
    position: int
    importance: int
    vector: int


def importances(scores: Integers, p: SystolicEvictorParameters) -> Integers:
    """Sum what all queries of a text give each of its tokens, as the evictor does.

    Parameters
    ----------
    scores : numpy.ndarray
        int64 [query heads, queries, tokens], as the array delivers them; those of tokens behind
        their query do not count.
    p : SystolicEvictorParameters
        Widths, shift, saturation.
    """
    tokens = scores.shape[1]
    total = np.zeros(tokens, np.int64)
    for query in range(tokens):
        seen = slice(0, query + 1)
        for row in scores[:, query, seen]:
            total[seen], _saturated = accumulate(total[seen], row, p)
    return total


def select(totals: Sequence[Integers], p: EvictionParameters) -> list[Kept]:
    """Return what is kept, head by head, by position.

    The vectors are for the popular tokens that most heads keep, then for those with the largest sum
    of importances in these heads.

    Parameters
    ----------
    totals : Sequence[numpy.ndarray]
        For each head int64 [tokens], the importances.
    p : EvictionParameters
        The policy.
    """
    count = len(totals[0])
    policy = AerpParameters(budget=p.evictor.slots, window=p.window, sinks=p.sinks)
    chosen = [policy.survivors(total) for total in totals]
    popular = popular_tokens(chosen, p.popular_heads, policy, count)
    heads, worth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for total, positions in zip(totals, chosen, strict=True):
        heads[positions] += 1
        worth[positions] += total[positions]
    # The last key counts first; among equals the earlier token.
    ranked = popular[np.lexsort((popular, -worth[popular], -heads[popular]))]
    vectors = {int(position): n for n, position in enumerate(ranked[: p.prefilled_vectors])}
    return [
        Kept(head, int(n), int(total[n]), vectors.get(int(n), KEPT))
        for head, (total, positions) in enumerate(zip(totals, chosen, strict=True))
        for n in positions
    ]
