"""Test the engine's model against the algorithm and the paper's example, and its parameters."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.veda.voting.vote_threshold import ThresholdCoefficients
from golden.veda.voting.voting_engine import (
    LayerStep,
    Victim,
    exact_votes,
    process_step,
    search,
    to_codes,
)
from golden.veda.voting.voting_policy import VotingPolicy, replay
from hdl.catalog import entry_named
from hdl.veda.voting.threshold_parameters import VoteThresholdParameters
from hdl.veda.voting.voting_engine import VotingEngineParameters

TINY = entry_named("voting_engine").parameters("tiny")
SHARP = ThresholdCoefficients(deviation=3277)
"""Coefficients for which heads with a sink take the fallback in a small cache."""

FIGURE = {5: {2, 3, 4}, 6: {2, 3, 4}, 7: {3, 4, 5, 7}, 8: {3, 6}}
"""Figure 2 (b): targets of the votes of rows 5 to 8, positions from 1."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "heads must be an integer from 1 to 128, not 0"),
        ({"lanes": 17}, "lanes must be an integer from 1 to 16, not 17"),
        ({"count_bits": 17}, "count_bits must be an integer from 2 to 16, not 17"),
        ({"reserved": 4097}, "reserved must be an integer from 0 to 4096, not 4097"),
        ({"protect_sink": 2}, "protect_sink must be one of False, True, not 2"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VotingEngineParameters(**change)


def test_steps_of_the_papers_figure() -> None:
    """One step per token, the counts spilled and reloaded: C = 0 2 4 3 1 1 1 0, evict 3."""
    p = VotingEngineParameters(heads=1, reserved=4)
    counts = np.zeros(0, np.int64)
    for row in range(1, 9):
        against = FIGURE.get(row, set())
        powers = np.array([0.02 if column in against else 1.0 for column in range(1, row + 1)])
        step = LayerStep(length=row, vote=row > 4, new_slot=row - 1, evictions=int(row == 8))
        # The previous count of the new slot is ignored.
        result = process_step(
            step, to_codes(powers / powers.sum())[np.newaxis], np.append(counts, 77), p
        )
        assert set(np.flatnonzero(result.votes) + 1) == against
        counts = result.sent
    assert counts.tolist() == [0, 2, 4, 3, 1, 1, 1, 0]
    assert result.victims == [Victim(3 - 1, 4, True)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 32))
def test_search_removes_slots_with_most_votes(counts: list[int], evictions: int) -> None:
    victims, left = search(np.array(counts), evictions, TINY)
    order = sorted(range(len(counts)), key=lambda slot: (-counts[slot], slot))
    assert [victim.slot for victim in victims if victim.found] == sorted(order[:evictions])
    assert len(victims) == evictions
    assert sorted(np.flatnonzero(left)) == sorted(order[evictions:])


def test_protected_slots_are_never_victims() -> None:
    p = VotingEngineParameters(
        threshold=VoteThresholdParameters(slots=8), reserved=2, protect_sink=True
    )
    victims, left = search(np.array([9, 9, 1, 2]), 3, p)
    assert victims == [Victim(2, 1, True), Victim(3, 2, True), Victim(0, 0, False)]
    assert left.tolist() == [True, True, False, False]


def test_counts_saturate() -> None:
    p = VotingEngineParameters(
        threshold=VoteThresholdParameters(slots=8), reserved=2, heads=3, count_bits=4
    )
    head = to_codes(np.array([0.9, 0.05, 0.05]))
    step = LayerStep(length=3, vote=True, new_slot=2, evictions=1)
    result = process_step(step, np.stack([head] * 3), np.array([15, 14, 9]), p)
    assert result.votes.tolist() == [0, 3, 3]
    assert result.counts.tolist() == [15, 15, 3]
    assert result.victims == [Victim(0, 15, True)]


@pytest.mark.parametrize("preset", ["tiny", "tiny_without_fallback"])
def test_model_and_replay_agree(preset: str) -> None:
    """Compare counts and victims of a text with the replay's, step by step."""
    p: VotingEngineParameters = entry_named("voting_engine").parameters(preset)
    fallback = p.threshold.fallback
    rng = np.random.default_rng(8)
    policy = VotingPolicy(prompt=36, target=20, reserved=4, largest=15)
    scores = rng.normal(scale=2.5, size=(3, 60, 60))
    fallbacks = 0
    counts = np.zeros(0, np.int64)
    for step in replay(scores, policy, exact_votes(SHARP, fallback=fallback)):
        length = len(step.positions)
        if length > len(counts):
            counts = np.append(counts, 3)
        header = LayerStep(
            length=length, vote=step.vote, new_slot=step.slot, evictions=len(step.victims)
        )
        result = process_step(header, to_codes(step.probabilities), counts, p, SHARP)
        assert result.counts.tolist() == step.counts.tolist()
        assert [victim.slot for victim in result.victims] == step.victims
        fallbacks += sum(outcome.fallback for outcome in result.outcomes)
        counts = result.sent
    assert (fallbacks > 10) == fallback


def test_fallback_decides_the_victim() -> None:
    """With a sink all heads vote once, or not at all: then the lowest slot is the victim."""
    head = to_codes(np.array([0.9, 0.06, 0.01, 0.03]))
    step = LayerStep(length=4, vote=True, new_slot=3, evictions=1)
    for preset, victim, count in (("tiny", 2, 3), ("tiny_without_fallback", 0, 0)):
        p: VotingEngineParameters = entry_named("voting_engine").parameters(preset)
        sharp = ThresholdCoefficients(deviation=4095)
        result = process_step(step, np.stack([head] * 3), np.zeros(4, np.int64), p, sharp)
        assert result.victims == [Victim(victim, count, True)]
