"""The study of the tail: its errors against the softmax, its sets against one head's model."""

import numpy as np
import pytest
import torch

from golden.lad.locality_aware_attention import LocalityAwareHead
from golden.lad.piecewise_linear_exp import rounded_lines
from golden.study.lad_tail import STEPS, Captured, active_shares, probability_errors, variant

N = 80


@pytest.fixture(scope="module")
def captured() -> Captured:
    """Two query heads with one head of keys, whose scores reach into the tail."""
    generator = torch.Generator().manual_seed(5)
    query = torch.randn(1, 2, N, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(1, 1, N, 8, generator=generator, dtype=torch.float64)
    return Captured(2 * query, key)


@pytest.mark.parametrize("tail", [8, 14])
def test_errors_are_those_of_probabilities(captured: Captured, tail: int) -> None:
    approximation = rounded_lines(variant(tail).intervals)
    sums = []
    for head in range(2):
        for now in range(N - STEPS, N):
            scores = captured.key[0, 0, : now + 1] @ captured.query[0, head, now]
            x = (scores - scores.max()).numpy()
            weights, exact = approximation(x), np.exp(x)
            sums.append(np.abs(weights / weights.sum() - exact / exact.sum()).sum())
    found = probability_errors(captured, tail, (N,))[N]
    assert found == pytest.approx(np.mean(sums), rel=1e-9)


@pytest.mark.parametrize("tail", [8, 14])
def test_active_positions_are_those_of_a_head(captured: Captured, tail: int) -> None:
    counts = []
    for number in range(2):
        head = LocalityAwareHead(intervals=variant(tail).intervals, size=8, threshold=np.inf)
        query, key = captured.query[0, number].numpy(), captured.key[0, 0].numpy()
        steps = [head.step(q, k, k) for q, k in zip(query, key, strict=True)]
        counts.append([len(step.active) / n for n, step in enumerate(steps, 1)])
    expected = np.mean(counts, axis=0)[N - STEPS :].mean()
    assert active_shares(captured, tail, (N,))[N] == pytest.approx(expected, rel=1e-12)
