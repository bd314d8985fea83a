"""The policy: survivors of a prefill, protected tokens, and victims."""

import numpy as np
import pytest

from golden.kelle.eviction.aerp import EMPTY, AerpParameters, replay
from hdl.kelle.eviction.systolic_evictor import (
    OnSaturation,
    ScoreSource,
    SystolicEvictorParameters,
)

SMALL = AerpParameters(budget=6, window=2, sinks=1)


def causal(rng: np.random.Generator, heads: int, tokens: int) -> np.ndarray:
    scores = rng.normal(size=(heads, tokens, tokens))
    return np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)


def test_survivors_are_sinks_window_and_the_best_others() -> None:
    importance = np.array([0.0, 5.0, 9.0, 1.0, 7.0, 9.0, 2.0, 0.0, 0.0])
    # Of positions 1 to 6 the best three: 9 at 2, 9 at 5, 7 at 4.
    assert SMALL.survivors(importance).tolist() == [0, 2, 4, 5, 7, 8]


def test_ties_among_survivors_resolve_to_the_earlier() -> None:
    assert SMALL.survivors(np.zeros(9)).tolist() == [0, 1, 2, 3, 7, 8]


def test_a_short_text_survives_whole() -> None:
    assert SMALL.survivors(np.zeros(4)).tolist() == [0, 1, 2, 3]


def test_sinks_and_window_are_protected() -> None:
    positions = np.array([0, 1, 6, 7, 8])
    # Token 8 arrives: the window of two holds 7 and 8.
    assert SMALL.protects(positions, 8).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("budget", "window", "sinks", "message"),
    [
        (74, 64, 10, r"budget must be at least sinks \+ window \+ 1 = 75, not 74"),
        (0, 1, 0, "budget must be an integer from 1 to 4096, not 0"),
        (8, 9, 0, "window must be an integer from 1 to 8, not 9"),
    ],
)
def test_rejects_policies_without_an_evictable_slot(
    budget: int, window: int, sinks: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        AerpParameters(budget=budget, window=window, sinks=sinks)


@pytest.mark.parametrize("source", list(ScoreSource))
def test_replay_is_the_definition(source: ScoreSource) -> None:
    """Compared with an independent implementation, token by token, with a list of slots."""
    rng = np.random.default_rng(5)
    scores = causal(rng, 2, 40)
    first = 10
    importance: dict[int, float] = dict.fromkeys(range(40), 0.0)

    def weights(head: int, query: int, tokens: list[int]) -> list[float]:
        raw = [float(scores[head, query, token]) for token in tokens]
        if source is ScoreSource.RAW:
            return raw
        powers = [np.exp(value) for value in raw]
        return [power / sum(powers) for power in powers]

    for query in range(first):
        for head in range(2):
            tokens = list(range(query + 1))
            for token, weight in zip(tokens, weights(head, query, tokens), strict=True):
                importance[token] += weight
    others = sorted(range(1, first - 2), key=lambda token: (-importance[token], token))[:3]
    cached = [0, *sorted(others), first - 2, first - 1]

    for step in replay(scores, SMALL, first=first, steps=30, source=source):
        tokens = [*cached, step.now]
        for head in range(2):
            for token, weight in zip(tokens, weights(head, step.now, tokens), strict=True):
                importance[token] += weight
        free = [slot for slot, t in enumerate(cached) if t >= 1 and t <= step.now - 2]
        victim = min(free, key=lambda slot: importance[cached[slot]])
        assert step.positions.tolist() == cached
        assert step.victim == step.slot == victim
        cached[victim] = step.now


def test_saturation_halves_between_steps_but_not_in_a_prefill() -> None:
    """Importances of 4 bits; token 0 saturates in the prefill and in the first step."""
    evictor = SystolicEvictorParameters(
        rows=2,
        slots=4,
        index_width=2,
        input_width=6,
        score_width=4,
        shift=0,
        on_saturation=OnSaturation.HALVE,
    )
    scores = np.tril([[5, 0, 0, 0, 0], [5, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 2, 0], [0] * 5])
    first, second = replay(
        scores[np.newaxis].astype(float),
        AerpParameters(budget=4, window=2, sinks=1),
        first=3,
        steps=2,
        source=ScoreSource.RAW,
        evictor=evictor,
    )
    # The prefill clamps 5 + 5 and then adds 1 to 7; halving would leave 4 and 1.
    assert (first.halve, first.importance.tolist()) == (False, [7, 2, 1, 0])
    # The first step clamps 7 + 1, so that the second halves all, the new token's 2 included.
    assert (second.halve, second.importance.tolist()) == (True, [7, 2, 1, 2])
    assert second.updated.tolist() == [3, 1, 0, 1]


def test_free_slots_are_filled_first() -> None:
    scores = causal(np.random.default_rng(1), 1, 20)
    steps = list(replay(scores, SMALL, first=4, steps=10, source=ScoreSource.RAW))
    assert [step.slot for step in steps[:2]] == [4, 5]
    assert steps[0].positions.tolist() == [0, 1, 2, 3, EMPTY, EMPTY]
    assert steps[2].slot == steps[2].victim


def test_rejects_a_replay_longer_than_the_text() -> None:
    with pytest.raises(ValueError, match="prefill and steps must be at most 20, not 21"):
        list(replay(np.zeros((1, 20, 20)), SMALL, first=10, steps=11, source=ScoreSource.RAW))
