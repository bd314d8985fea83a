"""Contents of the accelerator's cache after a prefill: keys, values and inputs of kept tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised
from golden.kelle.eviction.eviction_controller import KEPT, ScoreUpdate
from golden.kelle.eviction.prefill_selector import Kept, importances, select
from golden.kelle.eviction.systolic_evictor import less_mean
from golden.kelle.kelle import KelleModel
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prefill:
    """Scores of the prefill of a text, and the tokens that the cache keeps.

    Parameters
    ----------
    scores : list[numpy.ndarray]
        By head, int64 [query heads, queries, tokens]; zero for tokens after the query.
    kept : list[Kept]
        The kept tokens, head by head, in the order of their slots.
    score_updates : list[ScoreUpdate]
        Score updates for the refresh controllers.
    """

    scores: list[Integers]
    kept: list[Kept]
    score_updates: list[ScoreUpdate]


def prefill(model: KelleModel, tokens: int) -> Prefill:
    """Fill the model's cache with the kept tokens of a text's first tokens."""
    p, x = model.parameters, model.layer.quantised[:tokens]
    positions = np.arange(tokens)
    keys, values = model.keys_values(x, positions)
    scores = list(head_scores(model, tokens))
    if p.centred:
        scores = [centred(head, p.eviction.evictor) for head in scores]
    kept = select([importances(head, p.eviction.evictor) for head in scores], p.eviction)
    score_updates, taken = [], [0] * p.kv_heads
    for token in kept:
        head, position, slot = token.head, token.position, taken[token.head]
        taken[head] += 1
        score_updates += model.eviction.prefill(head, position, token.importance, token.vector)
        if token.vector == KEPT:
            model.keys[head, slot] = keys[position, head]
            model.values[head, slot] = values[position, head]
        else:
            model.inputs[token.vector] = x[position]
    return Prefill(scores, kept, score_updates)


def centred(scores: Integers, evictor: SystolicEvictorParameters) -> Integers:
    """Return scores [query heads, queries, tokens], those of each query less their mean."""
    given = np.zeros_like(scores)
    for query in range(scores.shape[1]):
        seen = slice(0, query + 1)
        given[:, query, seen] = less_mean(scores[:, query, seen], evictor)
    return given


def head_scores(model: KelleModel, tokens: int) -> Iterator[Integers]:
    """Yield for each head the scores of a text's first tokens.

    Each is int64 [query heads, queries, tokens], and zero for tokens after the query.
    """
    p, x = model.parameters, model.layer.quantised[:tokens]
    positions = np.arange(tokens)
    queries = model.queries(x, positions)
    keys, _values = model.keys_values(x, positions)
    for head in range(p.kv_heads):
        group = queries[:, head * p.group_size : (head + 1) * p.group_size].swapaxes(0, 1)
        yield np.tril(requantised(group @ keys[:, head].T, *model.layer.score))
