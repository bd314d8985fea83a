"""Eviction and recomputation: parameter rules, coarse scores, popularity."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.kelle.eviction.aerp import EMPTY, AerpParameters, replay
from golden.kelle.eviction.eviction_controller import KEPT, EvictionModel, popular_tokens
from golden.kelle.eviction.head_scores import HeadScores
from golden.kelle.eviction.prefill_selector import importances, select
from golden.kelle.eviction.systolic_evictor import less_mean, quantise_scores
from hdl.catalog import entry_named
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import (
    OnSaturation,
    ScoreSource,
    SystolicEvictorParameters,
)

EVICTOR = SystolicEvictorParameters(rows=4, slots=8, index_width=3)
TINY = EvictionParameters(
    evictor=EVICTOR, kv_heads=3, window=3, sinks=1, vectors=2, vector_entries=2
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 7}, r"slots must be at least sinks \+ window \+ 1 = 9, not 8"),
        ({"sinks": 5}, r"slots must be at least sinks \+ window \+ 1 = 9, not 8"),
        ({"window": 1}, "window must be an integer from 2 to 4096, not 1"),
        ({"kv_heads": 0}, "kv_heads must be an integer from 1 to 64, not 0"),
        ({"popular_above": 4}, "popular_above must be an integer from 0 to 3, not 4"),
        ({"vectors": 65}, "vectors must be an integer from 0 to 64, not 65"),
        ({"score_bits": 9}, "score_bits must be an integer from 1 to 8, not 9"),
        ({"position_bits": 3}, "position_bits must be an integer from 4 to 24, not 3"),
        ({"vector_entries": 0}, "vector_entries must be an integer from 1 to 64, not 0"),
        (
            {"centred": True, "evict_before": True},
            "evict_before must be false with centred, not True",
        ),
        (
            {"centred": True, "evictor": replace(EVICTOR, source=ScoreSource.PROB)},
            "evictor.source must be raw with centred, not 'prob'",
        ),
    ],
)
def test_bad_policies(change: dict[str, Any], message: str) -> None:
    """Budgets without an evictable slot, and dimensions out of range."""
    arguments: dict[str, Any] = {
        "evictor": EVICTOR,
        "kv_heads": 3,
        "window": 3,
        "sinks": 1,
    } | change
    with pytest.raises(ValueError, match=message):
        EvictionParameters(**arguments)


def test_half_of_the_heads_is_not_popular() -> None:
    """The comparison with theta is strict: at exactly half nothing would be saved."""
    assert EvictionParameters(evictor=EVICTOR, kv_heads=4, window=3, sinks=1).popular_heads == 2
    assert EvictionParameters(evictor=EVICTOR, kv_heads=3, window=3, sinks=1).popular_heads == 1


def test_centre_finds_the_median_of_a_head() -> None:
    """Whatever the mean and the spread of the sums are, half of them get a score of 8 or more."""
    rng = np.random.default_rng(3)
    policy = entry_named("eviction_controller").parameters("smollm2")
    for mean, deviation in ((0, 100), (200_000, 3_000), (-1_000, 40), (12_345, 100_000)):
        # A few sums are far from the others, as those of sinks are.
        sums = rng.normal(mean, deviation, 128) + 60 * deviation * (np.arange(128) < 3)
        importance = sums.astype(np.int64)
        scores = HeadScores(policy)
        for _ in range(40):
            scores.learn(importance)
        coarse = scores.coarse(importance)
        # The centre alternates around the median by one step, 5 % of the tokens or less.
        assert abs(np.count_nonzero(coarse >= 8) - 64) <= 6
        assert (coarse.min(), coarse.max()) == (0, 15)
        assert np.all(np.diff(coarse[np.argsort(importance)]) >= 0)


def test_centre_remains_in_the_range_of_importances() -> None:
    """All sums but one are the largest: the distance of that one would move the centre beyond."""
    scores = HeadScores(entry_named("eviction_controller").parameters("smollm2"))
    width = scores.parameters.evictor.score_width
    largest = (1 << width - 1) - 1
    importance = np.full(128, largest)
    importance[0] = ~largest
    for _ in range(60):
        scores.learn(importance)
        assert ~largest <= scores.centre <= largest


@pytest.mark.parametrize("on_saturation", list(OnSaturation))
@pytest.mark.parametrize(
    ("source", "centred"),
    [(ScoreSource.RAW, False), (ScoreSource.PROB, False), (ScoreSource.RAW, True)],
)
def test_controller_places_tokens_as_the_policy(
    source: ScoreSource, centred: bool, on_saturation: OnSaturation
) -> None:
    """Both integer models agree, with importances so narrow that prefill and steps saturate."""
    evictor = SystolicEvictorParameters(
        rows=4,
        slots=8,
        index_width=3,
        input_width=7,
        score_width=4,
        shift=1,
        source=source,
        on_saturation=on_saturation,
    )
    p = EvictionParameters(
        evictor=evictor, kv_heads=1, window=2, sinks=1, vectors=0, centred=centred
    )
    raw = np.random.default_rng(8).normal(0, 3, (2, 80, 80))
    first, steps = 20, 60

    def given(query: int, tokens: np.ndarray) -> np.ndarray:
        scores = raw[:, query, tokens]
        if source is ScoreSource.PROB:
            scores = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return quantise_scores(scores, evictor)

    prefill = np.zeros((2, first, first), np.int64)
    for query in range(first):
        row = given(query, np.arange(query + 1))
        prefill[:, query, : query + 1] = less_mean(row, evictor) if centred else row
    model = EvictionModel(p)
    for token in select([importances(prefill, evictor)], p):
        model.prefill(0, token.position, token.importance)
    placed = []
    for now in range(first, first + steps):
        scores = given(now, np.append(model.heads[0].positions, now))
        model.search(0, scores[:, :-1], now)
        place, _updates = model.place(now, 0)
        model.own(0, place.slot, scores[:, -1])
        placed.append((place.slot, place.evicted))
    policy = AerpParameters(budget=8, window=2, sinks=1)
    centre = HeadScores(p) if centred else None
    wanted = list(
        replay(raw, policy, first=first, steps=steps, source=source, evictor=evictor, centre=centre)
    )
    assert placed == [(step.slot, int(step.positions[step.slot])) for step in wanted]
    assert any(step.halve for step in wanted) == (on_saturation is OnSaturation.HALVE)


def victims(offset: float, centred: bool) -> list[int]:
    """Return the victims of a head whose scores have a mean, in 400 steps of one text."""
    rng = np.random.default_rng(4)
    # A key attracts its queries more or less, and each score has a part of its own.
    raw = rng.normal(0, 1, (1, 464, 464)) + rng.normal(0, 1, 464) + offset
    evictor = SystolicEvictorParameters(rows=2, slots=64, index_width=6, score_width=26, shift=2)
    p = EvictionParameters(evictor=evictor, kv_heads=1, window=32, vectors=0, centred=centred)
    policy = AerpParameters(budget=64, window=32)
    centre = HeadScores(p) if centred else None
    steps = replay(
        raw, policy, first=64, steps=400, source=ScoreSource.RAW, evictor=evictor, centre=centre
    )
    return [int(step.positions[step.victim]) for step in steps]


def test_centred_importance_does_not_depend_on_the_mean_of_a_head() -> None:
    """With sums from zero, a negative mean makes the cache a sliding window."""
    centred = victims(0.0, True)
    for offset in (-6.0, -2.0, 2.0, 6.0):
        assert np.mean(np.equal(centred, victims(offset, True))) > 0.95
    raw = {offset: np.array(victims(offset, False)) for offset in (-6.0, 0.0)}
    assert np.mean(raw[-6.0] == raw[0.0]) < 0.01
    # In a cache of 64 tokens, ten of them sinks, no other token becomes older than 91 steps.
    assert (np.arange(64, 464) - raw[-6.0]).max() <= 91
    assert (np.arange(64, 464) - centred).max() > 190


def fill(model: EvictionModel, order: list[int]) -> None:
    """Fill all slots; importance by position is `order`."""
    for head in range(model.parameters.kv_heads):
        for position, importance in enumerate(order):
            model.prefill(head, position, importance)


def step(model: EvictionModel, now: int, victims: list[int]) -> int | None:
    """Decode a token; in each head make the slot of a given position the least important."""
    placements = []
    for head, position in enumerate(victims):
        slots = model.heads[head].positions
        scores = np.where(slots == position, -(1 << 14), 0)[np.newaxis]
        model.search(head, scores, now)
        placements.append(model.place(now, head)[0])
        assert placements[-1].evicted == position
    store = model.decide(now, placements).store
    return store[0] if store else None


def test_popularity_is_decided_once_by_the_heads_that_keep_the_leaving_token() -> None:
    """Position 5 is the leaving token when token 8 arrives; two of three heads keep it."""
    model = EvictionModel(TINY)
    fill(model, [0] * 8)
    assert step(model, 8, [5, 2, 2]) == 5
    assert model.vectors[0] == (5, {1, 2})
    # Position 6 is the next leaving token; only one head keeps it.
    assert step(model, 9, [6, 6, 3]) is None
    # The popular token is recomputed until the last head has evicted it.
    assert step(model, 10, [1, 5, 5]) == 7
    assert model.vectors == [(7, {0, 1, 2}), None], "its vector is free again immediately"


def test_storage_is_bounded() -> None:
    """With all vectors in use a popular token keeps its keys and values."""
    model = EvictionModel(TINY)
    fill(model, [0] * 8)
    assert step(model, 8, [2, 2, 2]) == 5
    assert step(model, 9, [3, 3, 3]) == 6
    assert step(model, 10, [4, 4, 4]) is None


def test_sinks_and_window_are_never_evicted() -> None:
    """Sinks and window are protected for any importance."""
    model = EvictionModel(TINY)
    fill(model, [-100, 5, 5, 5, 5, -100, -100, -100])
    for now in range(8, 40):
        for head in range(3):
            model.search(head, np.zeros((1, 8), np.int64), now)
            evicted = model.place(now, head)[0].evicted
            assert evicted != EMPTY
            assert 1 <= evicted <= now - TINY.window


def test_evicting_before_uses_the_step_before() -> None:
    """The victim's scores of the current step have no effect on its eviction."""
    model = EvictionModel(TINY)
    fill(model, [0, 9, 1, 9, 9, 9, 9, 9])
    model.search(0, np.zeros((1, 8), np.int64), 8)
    assert model.heads[0].victim == 2
    place, _news = model.place(8, 0)
    assert place.evicted == 2
    model.search(0, np.full((1, 8), 1 << 12), 9, place.slot)
    assert model.heads[0].importance[place.slot] == (1 << 12) >> EVICTOR.shift


def test_prefilled_popularity_excludes_the_window() -> None:
    """Tokens kept by most heads, except those that decoding decides on."""
    policy = AerpParameters(budget=6, window=2, sinks=1)
    kept = [np.array([0, 1, 2, 8, 9]), np.array([0, 2, 5, 8, 9]), np.array([0, 1, 5, 8, 9])]
    assert popular_tokens(kept, 2, policy, 10).tolist() == [0]
    assert popular_tokens(kept, 1, policy, 10).tolist() == [0, 1, 2, 5]
    with pytest.raises(ValueError, match="heads must be at least 1, not 0"):
        popular_tokens([], 1, policy, 10)


def test_prefilled_tokens_share_a_vector() -> None:
    """The first head's token reports the vector's entries, those of the others do not."""
    model = EvictionModel(TINY)
    announced = [len(model.prefill(head, 0, 3, vector=1)) for head in range(3)]
    assert announced == [1 + TINY.vector_entries, 1, 1]
    assert model.vectors[1] == (0, {0, 1, 2})
    assert [int(h.recomputed[1]) for h in model.heads] == [KEPT] * 3


def test_presets_are_within_the_kv_edram() -> None:
    """The eDRAM of each preset has entries for all slots and vectors."""
    for preset in ("smollm2", "paper"):
        eviction = entry_named("eviction_controller").parameters(preset)
        edram = entry_named("kv_edram").parameters(preset)
        assert (eviction.kv_heads, eviction.evictor.slots) == (edram.kv_heads, edram.slots)
        assert (eviction.vectors, eviction.vector_entries) == (
            edram.vectors,
            edram.vector_entries,
        )
        assert eviction.entries == edram.entries
