"""The fast forms of the policies choose the victims that the golden models choose."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from golden.kelle.eviction.aerp import EMPTY, AerpParameters
from golden.kelle.eviction.aerp import replay as replay_aerp
from golden.kelle.eviction.eviction_controller import EvictionModel
from golden.kelle.eviction.systolic_evictor import accumulate
from golden.policies.cache import Cache
from golden.policies.protocol import CachePolicy, Policy, Query, Unit
from golden.policies.scores import (
    H2O,
    SCORE_SHIFT,
    Aerp,
    FullCache,
    ScorePolicy,
    Source,
    StreamingLLM,
    TrackedAerp,
    accelerator_scores,
    eviction_of,
)
from golden.policies.voting import Voting
from golden.study.attention import Fallbacks
from golden.veda.voting.voting_policy import VotingPolicy
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


def replay(scores: np.ndarray, policy: CachePolicy, caches: int = 1) -> list[np.ndarray]:
    """Return the positions that each query attends to, ascending, [caches, count]."""
    cache = Cache(policy, 1, caches, TOKENS)
    attended = []
    for now in range(TOKENS):
        positions = cache.arrive(now)
        attended.append(np.sort(positions[0].numpy(), axis=-1))
        raw = torch.tensor(scores[:, now]).unflatten(0, (caches, -1))[None]
        raw = raw.gather(-1, positions[:, :, None].expand(*raw.shape[:3], -1))
        cache.step(Query(now, positions, raw, raw.softmax(-1)))
    return attended


def replayed(scores: np.ndarray, policy: CachePolicy) -> list[np.ndarray]:
    """Return the positions that each query attends to if all heads share a cache."""
    return [positions[0] for positions in replay(scores, policy)]


@pytest.mark.parametrize("source", [ScoreSource.RAW, ScoreSource.PROB])
@pytest.mark.parametrize("first", [32, 60])
def test_aerp_caches_what_the_golden_model_caches(source: ScoreSource, first: int) -> None:
    scores = raw_scores(3)
    policy = AerpParameters(budget=32, window=16, sinks=8)
    ours = replayed(scores, Aerp(budget=32, source=Source[source.name], prefill=first))
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
    ours = replayed(scores, Voting(budget=48, reserved=16))
    golden = replay_voting(scores, VotingPolicy(prompt=48, target=48, reserved=16))
    for step in golden:
        np.testing.assert_array_equal(ours[step.token], np.sort(step.positions))


def step_of(policy: Voting, sink: float) -> tuple[Query, Cache]:
    """Return query 63 of a head with a sink in slot 0, and the cache after it."""
    cache = Cache(policy, 1, 1, TOKENS)
    for now in range(64):
        positions = cache.arrive(now)
    row = torch.zeros(1, 1, 1, 64, dtype=torch.float64)
    row[..., 0] = sink
    query = Query(63, positions, row, row.softmax(-1))
    cache.step(query)
    return query, cache


def test_fallbacks_are_counted() -> None:
    counted = Fallbacks()
    for sink in (0.0, 9.0):
        counted.stepped(0, *step_of(Voting(budget=96, reserved=0), sink))
    assert counted.share == 1 / 2


def test_without_fallback_a_negative_threshold_is_no_vote() -> None:
    with_one, without = (
        -step_of(Voting(budget=96, reserved=0, fallback=fallback), 9.0)[1].importance
        for fallback in (True, False)
    )
    assert (with_one.sum(), without.sum()) == (1, 0)
    assert with_one[0, 0, 1] == 1


def test_streaming_llm_keeps_sinks_and_the_most_recent() -> None:
    attended = replayed(raw_scores(5), StreamingLLM(budget=24))
    np.testing.assert_array_equal(attended[90], [0, 1, 2, 3, *range(70, 91)])


def test_h2o_keeps_a_recent_half() -> None:
    scores = raw_scores(6)
    for now, tokens in enumerate(replayed(scores, H2O(budget=24))):
        assert set(range(max(0, now - 11), now + 1)) <= set(tokens.tolist())
        assert len(tokens) == min(now + 1, 25)


def test_units_share_a_cache() -> None:
    """Six query heads of two key/value heads: each cache is what its heads alone would do."""
    scores = np.concatenate([raw_scores(8), raw_scores(9)])
    for unit, caches in ((Unit.QUERY_HEAD, 6), (Unit.KV_HEAD, 2), (Unit.LAYER, 1)):
        assert unit.caches(6, 2) == caches
        together = replay(scores, H2O(budget=24, unit=unit), caches)
        for cache, heads in enumerate(np.split(scores, caches)):
            for one, all_of in zip(replayed(heads, H2O(budget=24)), together, strict=True):
                np.testing.assert_array_equal(one, all_of[cache])


def test_accelerator_scores_are_the_evictors() -> None:
    """Q6.10 in base 2, saturating, and rounded down by two bits, as `accumulate` has them."""
    p = SystolicEvictorParameters(shift=2, score_width=26)
    raw = np.random.default_rng(3).normal(0, 12, 4000)
    words = np.clip(np.rint(raw * np.log2(np.e) * 1024), -(1 << 15), (1 << 15) - 1)
    wanted = accumulate(np.zeros(4000, np.int64), words.astype(np.int64), p)[0]
    assert np.array_equal(accelerator_scores(torch.tensor(raw)).numpy(), wanted)


def test_full_cache_keeps_everything() -> None:
    assert [len(tokens) for tokens in replayed(raw_scores(7), FullCache())] == [
        *range(1, TOKENS + 1)
    ]


def test_important_is_the_upper_half() -> None:
    importance = torch.tensor([[[5.0, 1, 4, 2, 9, 3, 8, 7]]])
    high = FullCache(source=Source.PROB).important(importance, torch.arange(8)[None, None])
    assert high[0, 0].int().tolist() == [1, 0, 0, 0, 1, 0, 1, 1]
    rest = [0, 1, 2, 3, 5, 7]
    high = H2O().important(importance[..., rest], torch.tensor([[rest]]))
    assert high[0, 0].int().tolist() == [1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Aerp(budget=1), "window must be an integer from 1 to 1048576, not 0"),
        (lambda: StreamingLLM(budget=5), "budget must be at least 6, not 5"),
        (
            lambda: TrackedAerp(source=Source.CENTRED, prefill=4),
            "prefill must be 0 with the source CENTRED, not 4",
        ),
        (lambda: Voting(budget=31), "budget must be at least reserved = 32, not 31"),
        (lambda: Voting(budget=64, a=-1.0), "a must not be negative, not -1.0"),
        (lambda: Voting(budget=64, b=-0.1), "b must not be negative, not -0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], Policy], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_tracked_medians_divide_each_head_as_the_accelerator() -> None:
    """Importances of several heads, divided by the golden model of the eviction controller."""
    policy = TrackedAerp(budget=32)
    cache = Cache(policy, 1, HEADS, TOKENS)
    scores = (
        raw_scores(5) * np.array([1, 3, 0.2])[:, None, None] + np.array([0, 9, -2])[:, None, None]
    )
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
        positions = cache.arrive(now)
        cache.step(Query(now, positions, raw, raw.softmax(-1)))
        rule = cache.policy
        assert isinstance(rule, ScorePolicy)
        found = rule.important(cache.importance, positions)[0].numpy()
        np.testing.assert_array_equal(found, known[:, : now + 1])
    assert abs(known[:, :32].mean(1) - 0.5).max() < 0.2


def test_a_tracked_median_needs_integers() -> None:
    with pytest.raises(ValueError, match="split by a tracked median needs the source INTEGER"):
        TrackedAerp(budget=32, source=Source.PROB)


@pytest.mark.parametrize("first", [48, 80])
def test_voting_trims_a_prompt_as_the_golden_model(first: int) -> None:
    scores = raw_scores(4, 3.0)
    ours = replayed(scores, Voting(budget=48, reserved=16, prefill=first))
    for step in replay_voting(scores, VotingPolicy(prompt=first, target=48, reserved=16)):
        np.testing.assert_array_equal(ours[step.token], np.sort(step.positions))


POLICIES = [
    StreamingLLM(budget=24),
    H2O(budget=24),
    Aerp(budget=24),
    Aerp(budget=24, prefill=60),
    Aerp(budget=24, source=Source.RAW),
    Aerp(budget=24, source=Source.INTEGER),
    TrackedAerp(budget=24, source=Source.CENTRED),
    Voting(budget=24, reserved=8),
    Voting(budget=24, reserved=8, fallback=False),
    Voting(budget=24, reserved=8, prefill=60, a=0.9, b=0.4),
    FullCache(),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_fast_form_is_the_second_source_and_the_plain_form(policy: Policy) -> None:
    scores = raw_scores(11, 4.0)
    attended = replayed(scores, policy)
    plain = Policy.second_source(policy, scores)
    for ours, theirs, plainly in zip(attended, policy.second_source(scores), plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours, plainly)
