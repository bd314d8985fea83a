"""Bit-exact model of the prefill selector: the tokens that each head keeps, and recomputed tokens.

Section 4.1 of the paper: importance is summed over all queries of the text; the sinks, the recent
window and the best other tokens are kept; tokens that many heads keep are stored as input vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golden.kelle.eviction.aerp import AerpParameters
from golden.kelle.eviction.eviction_controller import KEPT, popular_tokens
from golden.kelle.eviction.systolic_evictor import Integers, accumulate_heads
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters


@dataclass(frozen=True)
class Kept:
    """A token that a head keeps.

    Parameters
    ----------
    head, position, importance : int
        Head, position of the token, and its importance in the head.
    vector : int
        The input vector from which it is recomputed, or `KEPT`.
    """

    head: int
    position: int
    importance: int
    vector: int


def importances(scores: Integers, p: SystolicEvictorParameters) -> Integers:
    """Sum the scores of all queries of a text for each token, with the evictor's arithmetic.

    Parameters
    ----------
    scores : numpy.ndarray
        int64 [query heads, queries, tokens], as the array outputs them; those of tokens after the
        query are ignored.
    p : SystolicEvictorParameters
        Widths, shift, saturation.
    """
    tokens = scores.shape[1]
    total = np.zeros(tokens, np.int64)
    for query in range(tokens):
        seen = slice(0, query + 1)
        total[seen], _saturated = accumulate_heads(total[seen], scores[:, query, seen], p)
    return total


def select(totals: Sequence[Integers], p: EvictionParameters) -> list[Kept]:
    """Return the kept tokens, head by head, by position.

    The vectors are for the popular tokens that the most heads keep; of tokens with equally many
    heads, for those with the greatest sum of importances in these heads.

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
    # The last key is the primary one; ties resolve to the earlier token.
    ranked = popular[np.lexsort((popular, -worth[popular], -heads[popular]))]
    vectors = {int(position): n for n, position in enumerate(ranked[: p.prefilled_vectors])}
    return [
        Kept(head, int(n), int(total[n]), vectors.get(int(n), KEPT))
        for head, (total, positions) in enumerate(zip(totals, chosen, strict=True))
        for n in positions
    ]
