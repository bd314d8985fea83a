"""Test the voting algorithm in float64: the paper's example, its threshold, its stages."""

from itertools import pairwise

import numpy as np
import pytest

from golden.veda.voting.voting_policy import (
    VotingPolicy,
    head_votes,
    replay,
    softmax,
    target_size,
    threshold,
)

FIGURE = {5: {2, 3, 4}, 6: {2, 3, 4}, 7: {3, 4, 5, 7}, 8: {3, 6}}
"""Figure 2 (b): targets of the votes of rows 5 to 8, positions from 1."""


def test_counts_of_the_papers_figure() -> None:
    """Rows 1 to 4 are reserved; position 3 has the most votes, although it is one of them."""
    size = max(FIGURE)
    scores = np.full((1, size, size), -np.inf)
    for row in range(1, size + 1):
        against = FIGURE.get(row, set())
        # Two kinds of probabilities, one above and one below the mean.
        scores[0, row - 1, :row] = [
            -4.0 if column in against else 0.0 for column in range(1, row + 1)
        ]
    policy = VotingPolicy(prompt=7, target=7, reserved=4)
    steps = list(replay(scores, policy))
    assert [step.vote for step in steps] == [False] * 4 + [True] * 4
    assert steps[-1].counts.tolist() == [0, 2, 4, 3, 1, 1, 1, 0]
    assert steps[-1].victims == [3 - 1]
    assert not any(step.victims for step in steps[:-1])


def test_threshold_is_mean_minus_deviation() -> None:
    probabilities = np.array([0.5, 0.25, 0.125, 0.125])
    expected = 1 / 4 - 0.2 * np.std(probabilities)
    assert threshold(probabilities) == pytest.approx(expected, rel=1e-15)
    assert head_votes(probabilities).tolist() == [False, False, True, True]


def test_sink_makes_the_threshold_negative() -> None:
    """From p = 5 / sqrt(l) on, the only vote is against the first smallest probability."""
    length = 400
    for share, negative in ((0.24, False), (0.26, True)):
        probabilities = np.full(length, (1 - share) / (length - 1))
        probabilities[0] = share
        assert (threshold(probabilities) < 0) == negative
    probabilities[[7, 9]] /= 2
    assert np.flatnonzero(head_votes(probabilities)).tolist() == [7]


def test_equal_probabilities_cast_no_vote() -> None:
    assert not head_votes(np.full(64, 1 / 64)).any()


@pytest.mark.parametrize(
    ("prompt", "ratio", "size"), [(512, 0.5, 256), (100, 0.125, 32), (101, 0.5, 51)]
)
def test_target_size(prompt: int, ratio: float, size: int) -> None:
    assert target_size(prompt, ratio) == size


def test_prompt_is_trimmed_then_each_token_evicts_one() -> None:
    rng = np.random.default_rng(4)
    policy = VotingPolicy(prompt=40, target=24, reserved=8)
    steps = list(replay(rng.normal(scale=2, size=(3, 60, 60)), policy))
    assert [len(step.victims) for step in steps] == [0] * 39 + [16] + [1] * 20
    assert [len(step.positions) for step in steps] == [*range(1, 41), *[25] * 20]
    trimmed, first = steps[39], steps[40]
    kept = np.delete(trimmed.positions, trimmed.victims)
    assert first.positions.tolist() == [*kept, 40]
    # No remaining token has more votes than an evicted one.
    counts = trimmed.counts
    assert np.delete(counts, trimmed.victims).max() <= counts[trimmed.victims].min()
    for before, step in pairwise(steps[40:]):
        assert step.slot == before.victims[0]
        assert step.positions[step.slot] == step.token
        assert step.counts[step.slot] <= 3
        assert step.probabilities.sum(axis=1) == pytest.approx(1)


def test_softmax_of_rows() -> None:
    assert softmax(np.log([[1.0, 3.0], [2.0, 2.0]])) == pytest.approx(
        np.array([[0.25, 0.75], [0.5, 0.5]])
    )


def test_target_is_checked() -> None:
    with pytest.raises(ValueError, match="target must be an integer from 1 to 40, not 41"):
        VotingPolicy(prompt=40, target=41)
    with pytest.raises(ValueError, match="prompt must be at most the text's 8, not 9"):
        list(replay(np.zeros((1, 8, 8)), VotingPolicy(prompt=9, target=8)))
