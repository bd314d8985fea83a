"""Prefill selection: parameter rules, and the model compared with the sorting of libraries."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill_selector import Kept, importances, select
from golden.kelle.eviction.systolic_evictor import quantise_scores
from golden.llm import Trace, open_trace
from hdl.catalog import entry_named
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource

ENTRY = entry_named("prefill_selector")
TINY: PrefillSelectorParameters = ENTRY.parameters("tiny")
SMOLLM2: PrefillSelectorParameters = ENTRY.parameters("smollm2")
LAYER = 14


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(text="prose", tokens=640, layers=(LAYER,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefill_tokens": 4}, "prefill_tokens must be at least slots = 8, not 4"),
        ({"prefill_tokens": 30}, "prefill_tokens must be a multiple of rows = 4, not 30"),
        (
            {"prefill_tokens": 512},
            r"prefill_tokens must be at most 2\*\*position_bits = 256, not 512",
        ),
    ],
)
def test_rejects_illegal_contexts(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)


def columns(trace: Trace, head: int, source: ScoreSource, tokens: int) -> Any:
    """Return the scores of three query heads of SmolLM2 for each token, and its importance."""
    shift = 8 if source is ScoreSource.RAW else 4
    evictor = replace(SMOLLM2.eviction.evictor, source=source, shift=shift)
    heads = [trace.attention_trace(LAYER, 3 * head + q) for q in range(3)]
    if source is ScoreSource.RAW:
        real = np.tril(np.stack([h.scores for h in heads])[:, :tokens, :tokens])
    else:
        real = np.stack([h.probabilities for h in heads])[:, :tokens, :tokens]
    scores = quantise_scores(real, evictor)
    return scores >> evictor.shift, importances(scores, evictor)


@pytest.mark.parametrize("source", list(ScoreSource))
def test_importances_are_the_columns_sums(trace: Trace, source: ScoreSource) -> None:
    """Without saturation, an importance is the sum of a column, in any order."""
    for head in range(3):
        addends, totals = columns(trace, head, source, 200)
        inside = np.abs(addends).sum(axis=(0, 1)) < 1 << 15
        assert np.count_nonzero(inside) > 100
        assert np.array_equal(addends.sum(axis=(0, 1))[inside], totals[inside])


@pytest.mark.parametrize("tokens", [129, 200, 640])
def test_survivors_are_those_of_numpy_and_torch(trace: Trace, tokens: int) -> None:
    """On SmolLM2's columns; for ties, topk specifies the values but not the indices."""
    p = SMOLLM2.eviction
    totals = [columns(trace, head, ScoreSource.RAW, tokens)[1] for head in range(p.kv_heads)]
    kept = select(totals, p)
    for head, total in enumerate(totals):
        mine = np.array([token.position for token in kept if token.head == head])
        middle = np.arange(p.sinks, tokens - p.window)
        ranked = middle[np.lexsort((middle, -total[middle]))][: SMOLLM2.places]
        wanted = sorted({*range(p.sinks), *range(tokens - p.window, tokens), *ranked.tolist()})
        assert mine.tolist() == wanted
        chosen = mine[(mine >= p.sinks) & (mine < tokens - p.window)]
        count = min(SMOLLM2.places, len(middle))
        best = torch.topk(torch.from_numpy(total[middle]), count).values
        assert sorted(total[chosen].tolist(), reverse=True) == best.tolist()
        for token in kept:
            assert token.head != head or token.importance == total[token.position]


def test_popular_tokens_are_those_of_most_heads(trace: Trace) -> None:
    """Only the best of them receive the vectors, in all heads that keep them."""
    p, tokens = SMOLLM2.eviction, 320
    totals = [columns(trace, head, ScoreSource.RAW, tokens)[1] for head in range(p.kv_heads)]
    kept = select(totals, p)
    owners: dict[int, list[Kept]] = {}
    for token in kept:
        owners.setdefault(token.position, []).append(token)
    many = [n for n in owners if len(owners[n]) >= 2 and n < tokens - p.window]
    assert len(many) > p.prefilled_vectors
    # Independent ranking: most heads first, then the most important, then the earliest.
    worth = {n: (-len(owners[n]), -sum(t.importance for t in owners[n]), n) for n in many}
    ranked = sorted(many, key=worth.__getitem__)
    assert ranked[: p.prefilled_vectors] != sorted(many)[: p.prefilled_vectors]
    for position, tokens_there in owners.items():
        rank = ranked.index(position) if position in many else p.prefilled_vectors
        vector = rank if rank < p.prefilled_vectors else KEPT
        assert {token.vector for token in tokens_there} == {vector}


def test_a_text_within_the_budget_is_kept_as_a_whole() -> None:
    p = TINY.eviction
    kept = select([np.arange(8)[::-1]] * p.kv_heads, p)
    assert [token.position for token in kept] == list(range(8)) * p.kv_heads
    # All heads keep all tokens, but three are in the window, and a prefill has four vectors.
    assert [token.position for token in kept if token.vector != KEPT] == [0, 1, 2, 3] * p.kv_heads


def test_equal_tokens_are_kept_by_position() -> None:
    p = TINY.eviction
    kept = select([np.zeros(20, np.int64)] * p.kv_heads, p)
    assert [token.position for token in kept] == [0, 1, 2, 3, 4, 17, 18, 19] * p.kv_heads
