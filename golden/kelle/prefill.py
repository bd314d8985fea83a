"""What a prefill leaves in the cache: the best tokens of each head, and which are recomputed.

Section 4.1 of the paper: importance is summed over all queries of the text, the sinks, the recent
window and the best others are kept, and what many heads keep is stored as an input vector.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.kelle.aerp import AerpParameters
from golden.kelle.eviction_controller import KEPT, News, popular_tokens
from golden.kelle.kelle import KelleModel
from golden.kelle.requantiser import requantised
from golden.kelle.systolic_evictor import accumulate
from hdl.kelle.kelle_parameters import Operation

Integers = NDArray[np.int64]


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


def prefill(model: KelleModel, tokens: int) -> tuple[list[Kept], list[News]]:
    """Fill the model's cache with what it keeps of a text's first tokens.

    Returns
    -------
    tuple[list[Kept], list[News]]
        The tokens, head by head in the order of their slots, and what the refresh controllers are
        told.
    """
    p, x = model.parameters, model.layer.quantised[:tokens]
    positions = np.arange(tokens)
    queries = model.turn(model.project(Operation.QUERY, x), positions)
    keys, values = model.keys_values(x, positions)
    policy = AerpParameters(budget=p.slots, window=p.window, sinks=p.sinks)
    totals = [_importance(model, queries, keys[:, head], head) for head in range(p.heads)]
    chosen = [policy.survivors(total) for total in totals]
    popular = popular_tokens(chosen, p.eviction.popular_heads, policy, tokens)
    # Half of the room for vectors is left to tokens that become popular.
    vectors = {int(n): number for number, n in enumerate(popular[: p.vectors // 2])}
    for position, vector in vectors.items():
        model.inputs[vector] = x[position]
    kept, news = [], []
    for head, (total, positions) in enumerate(zip(totals, chosen, strict=True)):
        for slot, position in enumerate(map(int, positions)):
            token = Kept(head, position, int(total[position]), vectors.get(position, KEPT))
            kept.append(token)
            news += model.eviction.prefill(head, position, token.importance, token.vector)
            if token.vector == KEPT:
                model.keys[head, slot] = keys[position, head]
                model.values[head, slot] = values[position, head]
    return kept, news


def _importance(model: KelleModel, queries: Integers, keys: Integers, head: int) -> Integers:
    """Sum what all queries of a text give each of its tokens, as the evictor does."""
    p = model.parameters
    total = np.zeros(len(keys), np.int64)
    mine = queries[:, head * p.queries : (head + 1) * p.queries]
    for token in range(len(keys)):
        scores = requantised(mine[token] @ keys[: token + 1].T, *model.layer.score)
        for row in scores:
            total[: token + 1], _ = accumulate(total[: token + 1], row, p.eviction.evictor)
    return total
