"""The replayed policies choose the victims that the golden models choose."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from golden.kelle.eviction.aerp import EMPTY, AerpParameters
from golden.kelle.eviction.aerp import replay as replay_aerp
from golden.kelle.eviction.eviction_controller import EvictionModel
from golden.kelle.eviction.systolic_evictor import accumulate
from golden.study.policies import (
    SCORE_SHIFT,
    Policy,
    ScorePolicy,
    ScoreReplay,
    Source,
    Split,
    Unit,
    VotingPolicy,
    VotingReplay,
    accelerator_scores,
    aerp,
    eviction_of,
    full_cache,
    h2o,
    streaming_llm,
)
from golden.veda.voting.voting_policy import VotingPolicy as GoldenVoting
from golden.veda.voting.voting_policy import replay as replay_voting
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters

HEADS, TOKENS = 3, 96


def raw_scores(seed: int, sink: float = 0.0) -> np.ndarray:
    """Return scores as a real head has them: some keys attract, and perhaps the first one most."""
    random = np.random.default_rng(seed)
    scores = random.normal(0, 1.5, (HEADS, TOKENS, TOKENS)) + random.normal(0, 1, TOKENS)
    scores[..., 0] += sink
    scores[:, np.triu_indices(TOKENS, 1)[0], np.triu_indices(TOKENS, 1)[1]] = -np.inf
    return scores


def replayed(scores: np.ndarray, policy: Policy) -> list[np.ndarray]:
    """Return the cached tokens that each query attends to, by their positions."""
    if isinstance(policy, ScorePolicy):
        replay = ScoreReplay([policy], 1, TOKENS, torch.float64)
    else:
        replay = VotingReplay([policy], TOKENS, torch.float64)
    alive = torch.ones(1, 1, TOKENS, dtype=torch.bool)
    attended = []
    for now in range(TOKENS):
        known = alive[..., : now + 1]
        attended.append(np.flatnonzero(known[0, 0].numpy()))
        raw = torch.tensor(scores[None, None, :, now, : now + 1])
        raw = raw.masked_fill(~known[:, :, None], -torch.inf)
        replay.step(now, known, raw, raw.softmax(-1))
    return attended


@pytest.mark.parametrize("source", [ScoreSource.RAW, ScoreSource.PROB])
@pytest.mark.parametrize("first", [32, 60])
def test_aerp_caches_what_the_golden_model_caches(source: ScoreSource, first: int) -> None:
    scores = raw_scores(3)
    policy = AerpParameters(budget=32, window=16, sinks=8)
    ours = replayed(scores, aerp(32, Source[source.name], prefill=first))
    steps = replay_aerp(scores, policy, first=first, steps=TOKENS - first, source=source)
    evicted = 0
    for step in steps:
        cached = np.sort(step.positions[step.positions != EMPTY])
        np.testing.assert_array_equal(ours[step.now], [*cached, step.now])
        evicted += 1
    assert evicted == TOKENS - first


@pytest.mark.parametrize("sink", [0.0, 3.0, 6.0])
def test_voting_caches_what_the_golden_model_caches(sink: float) -> None:
    scores = raw_scores(4, sink)
    ours = replayed(scores, VotingPolicy(budget=48, reserved=16))
    golden = replay_voting(scores, GoldenVoting(prompt=48, target=48, reserved=16))
    for step in golden:
        np.testing.assert_array_equal(ours[step.token], np.sort(step.positions))


def test_voting_takes_both_paths() -> None:
    replay = VotingReplay([VotingPolicy(budget=48, reserved=0)], TOKENS, torch.float64)
    for sink in (0.0, 9.0):
        row = torch.zeros(1, 1, 1, 64, dtype=torch.float64)
        row[..., 0] = sink
        replay.step(63, torch.ones(1, 1, 64, dtype=torch.bool), row, row.softmax(-1))
    assert (replay.fallbacks, replay.voters) == (1, 2)


def test_without_fallback_a_negative_threshold_is_no_vote() -> None:
    policies = [
        VotingPolicy(budget=96, reserved=0, fallback=fallback) for fallback in (True, False)
    ]
    replay = VotingReplay(policies, TOKENS, torch.float64)
    row = torch.zeros(2, 1, 1, 64, dtype=torch.float64)
    row[..., 0] = 9.0
    replay.step(63, torch.ones(2, 1, 64, dtype=torch.bool), row, row.softmax(-1))
    assert replay.counts.sum(-1).tolist() == [1, 0]
    assert replay.counts[0, 1] == 1


def test_streaming_llm_keeps_sinks_and_the_most_recent() -> None:
    attended = replayed(raw_scores(5), streaming_llm(24))
    np.testing.assert_array_equal(attended[90], [0, 1, 2, 3, *range(70, 91)])


def test_h2o_keeps_a_recent_half() -> None:
    scores = raw_scores(6)
    for now, tokens in enumerate(replayed(scores, h2o(24))):
        assert set(range(max(0, now - 11), now + 1)) <= set(tokens.tolist())
        assert len(tokens) == min(now + 1, 25)


def kept_by(scores: np.ndarray, policy: ScorePolicy, rows: int, shared: int) -> np.ndarray:
    """Return which tokens are cached at the end, bool [rows, tokens]; scores are of query heads."""
    replay = ScoreReplay([policy], rows, TOKENS, torch.float64, shared)
    alive = torch.ones(1, rows, TOKENS, dtype=torch.bool)
    for now in range(TOKENS):
        known = alive[..., : now + 1]
        raw = torch.tensor(scores[:, now, : now + 1]).reshape(1, rows, -1, now + 1)
        raw = raw.masked_fill(~known[:, :, None], -torch.inf)
        replay.step(now, known, raw, raw.softmax(-1))
    return alive[0].numpy()


def test_units_evict_together() -> None:
    """Six query heads of two key/value heads: each unit is what its heads alone would do."""
    scores = np.concatenate([raw_scores(8), raw_scores(9)])
    lanes = {unit: kept_by(scores, h2o(24, unit), 6, 3) for unit in Unit}
    for head in range(6):
        alone = kept_by(scores[head : head + 1], h2o(24), 1, 1)
        assert np.array_equal(lanes[Unit.QUERY_HEAD][head], alone[0])
    pairs = kept_by(scores, h2o(24), 2, 1)
    assert np.array_equal(lanes[Unit.KV_HEAD], pairs.repeat(3, axis=0))
    whole = kept_by(scores, h2o(24), 1, 1)
    assert np.array_equal(lanes[Unit.LAYER], whole.repeat(6, axis=0))
    assert np.array_equal(kept_by(scores, h2o(24, Unit.LAYER), 2, 1), whole.repeat(2, axis=0))


def test_accelerator_scores_are_the_evictors() -> None:
    """Q6.10 in base 2, saturating, and rounded down by two bits, as `accumulate` has them."""
    p = SystolicEvictorParameters(shift=2, score_width=26)
    raw = np.random.default_rng(3).normal(0, 12, 4000)
    words = np.clip(np.rint(raw * np.log2(np.e) * 1024), -(1 << 15), (1 << 15) - 1)
    wanted = accumulate(np.zeros(4000, np.int64), words.astype(np.int64), p)[0]
    assert np.array_equal(accelerator_scores(torch.tensor(raw)).numpy(), wanted)


def test_full_cache_keeps_everything() -> None:
    assert [len(tokens) for tokens in replayed(raw_scores(7), full_cache())] == [
        *range(1, TOKENS + 1)
    ]


def test_important_is_the_upper_half() -> None:
    replay = ScoreReplay([full_cache(Source.PROB)], 1, 8, torch.float64)
    replay.importance[0, 0] = torch.tensor([5.0, 1, 4, 2, 9, 3, 8, 7])
    alive = torch.ones(1, 1, 8, dtype=torch.bool)
    assert replay.important(alive)[0, 0].tolist() == [
        True,
        False,
        False,
        False,
        True,
        False,
        True,
        True,
    ]
    alive[..., 4] = alive[..., 6] = False
    assert replay.important(alive)[0, 0].tolist() == [
        True,
        False,
        True,
        False,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: aerp(1, Source.RAW), "window must be an integer from 1 to 1048576, not 0"),
        (lambda: streaming_llm(5), "budget must be at least 6, not 5"),
        (lambda: VotingPolicy(budget=31), "budget must be at least reserved = 32, not 31"),
        (lambda: VotingPolicy(budget=64, a=-1.0), "a must not be negative, not -1.0"),
        (lambda: VotingPolicy(budget=64, b=-0.1), "b must not be negative, not -0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], Policy], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_tracked_medians_divide_each_head_as_the_accelerator() -> None:
    """Importances of several heads, divided by the golden model of the eviction controller."""
    policy = aerp(32, Source.INTEGER, split=Split.CENTRE)
    replay = ScoreReplay([policy], HEADS, TOKENS, torch.float64)
    scores = (
        raw_scores(5) * np.array([1, 3, 0.2])[:, None, None] + np.array([0, 9, -2])[:, None, None]
    )
    alive = torch.ones(1, HEADS, TOKENS, dtype=torch.bool)
    models = [EvictionModel(eviction_of(policy)) for _ in range(HEADS)]
    known = np.zeros((HEADS, TOKENS), bool)
    for now in range(32):
        raw = torch.tensor(scores[None, :, None, now, : now + 1])
        given = accelerator_scores(raw)[0, :, 0].numpy().astype(np.int64)
        for head, model in enumerate(models):
            # The evictor drops the bits that these scores have lost already.
            row = np.zeros((1, 32), np.int64)
            row[0, : now + 1] = given[head] << SCORE_SHIFT
            updates = model.search(0, row, now) if now else []
            slot = model.place(now, 0)[0].slot
            updates += model.own(0, slot, row[:, now])
            for entry, score, _valid in updates:
                known[head, entry] = score >= 8
        replay.step(now, alive[..., : now + 1], raw, raw.softmax(-1))
        found = replay.important(alive[..., : now + 1])[0].numpy()
        np.testing.assert_array_equal(found, known[:, : now + 1])
    assert abs(known[:, :32].mean(1) - 0.5).max() < 0.2


def test_a_tracked_median_needs_integers() -> None:
    with pytest.raises(ValueError, match="split by a tracked median needs the source INTEGER"):
        aerp(32, Source.PROB, split=Split.CENTRE)
