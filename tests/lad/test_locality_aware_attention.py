"""LAD's algorithm: against piecewise linear attention, recomputed caches, brute force."""

import numpy as np
import pytest

from golden.lad.key_centres import KeyCentres, all_centres
from golden.lad.locality_aware_attention import (
    RECENT,
    IntermediateCaches,
    LocalityAwareHead,
    piecewise_linear_attention,
)
from hdl.lad.exp_intervals import Fit, IntervalParameters

SIZE, STEPS = 8, 90


def text(seed: int, *, steps: int = STEPS, similar: float = 0.0) -> tuple[np.ndarray, ...]:
    """Return queries, keys and values [steps, d]; some keys are close to earlier ones."""
    rng = np.random.default_rng(seed)
    queries, keys, values = rng.normal(0, 1.5, (3, steps, SIZE))
    for now in range(8, steps):
        if rng.random() < similar:
            scale = rng.choice([-1, 1]) * rng.uniform(0.5, 2)
            keys[now] = scale * keys[rng.integers(now)] + rng.normal(0, 0.03, SIZE)
    return queries, keys, values


@pytest.mark.parametrize("intervals", [5, 8, 12])
@pytest.mark.parametrize("fit", Fit)
def test_exact_identification_is_piecewise_linear_attention(intervals: int, fit: Fit) -> None:
    """Equation 4 is equal to Equation 3, whatever the modes are, from the first step on."""
    p = IntervalParameters(intervals=intervals, fit=fit)
    head = LocalityAwareHead(intervals=p, size=SIZE, threshold=np.inf)
    queries, keys, values = text(1)
    for now in range(STEPS):
        step = head.step(queries[now], keys[now], values[now])
        expected = piecewise_linear_attention(
            queries[now], keys[: now + 1], values[: now + 1], head.lines
        )
        assert np.allclose(step.output, expected, rtol=1e-9, atol=1e-9)
        assert step.maximum == pytest.approx((keys[: now + 1] @ queries[now]).max())


@pytest.mark.parametrize("similar", [0.0, 0.7])
def test_caches_are_those_of_the_modes(similar: float) -> None:
    """A to F are recomputed from the modes after every step; they exclude the latest 15."""
    p = IntervalParameters(intervals=8)
    head = LocalityAwareHead(intervals=p, size=SIZE)
    queries, keys, values = text(2, similar=similar)
    for now in range(STEPS):
        head.step(queries[now], keys[now], values[now])
        inside = max(now + 1 - RECENT + 1, 0)
        rebuilt = IntermediateCaches.of_modes(
            keys[:inside], values[:inside], np.array(head.modes[:inside], np.int64), head.lines
        )
        for name, expected in vars(rebuilt).items():
            assert np.allclose(getattr(head.caches, name), expected, rtol=1e-9, atol=1e-9), name
        assert not any(head.modes[inside:])


def test_counters_add_up_to_a_position_s_age() -> None:
    head = LocalityAwareHead(intervals=IntervalParameters(), size=SIZE)
    queries, keys, values = text(3, similar=0.7)
    for now in range(STEPS):
        head.step(queries[now], keys[now], values[now])
        assert [counts.sum() for counts in head.counts] == list(range(now + 1, 0, -1))


def test_sets_of_a_step() -> None:
    """The latest 16 are active and exact, one of them graduates, U is a subset of J."""
    head = LocalityAwareHead(intervals=IntervalParameters(), size=SIZE)
    queries, keys, values = text(4, similar=0.7)
    for now in range(STEPS):
        step = head.step(queries[now], keys[now], values[now])
        latest = range(max(now + 1 - RECENT, 0), now + 1)
        assert set(latest) <= set(step.active) & set(step.precise)
        assert set(step.changed) <= set(step.active)
        recent = set(step.changed) & set(latest)
        assert recent == ({now + 1 - RECENT} if now + 1 >= RECENT else set())
        assert 0 in step.precise


def test_error_of_wrong_interval_is_difference_of_lines() -> None:
    """A position with a misjudged interval contributes its mode's line at its exact score."""
    p = IntervalParameters(intervals=5)
    head = LocalityAwareHead(intervals=p, size=SIZE, threshold=0.6)
    queries, keys, values = text(5, similar=0.8)
    lost = 0
    for now in range(STEPS):
        modes = np.array([*head.modes, 0])
        step = head.step(queries[now], keys[now], values[now])
        x = keys[: now + 1] @ queries[now] - step.maximum
        number = np.where(np.isin(np.arange(now + 1), step.active), head.lines.intervals(x), modes)
        weights = head.lines.slopes[number] * x + head.lines.intercepts[number]
        assert step.denominator == pytest.approx(weights.sum(), rel=1e-9, abs=1e-9)
        lost += int((number != head.lines.intervals(x)).sum())
    assert lost > 0


@pytest.mark.parametrize("threshold", [0.98, 0.9, 0.5])
def test_centres_by_brute_force(threshold: float) -> None:
    for seed in range(8):
        keys = text(seed, similar=0.7)[1]
        centres = KeyCentres(threshold=threshold)
        for key in keys:
            centres.add(key)
        centre, ratio = all_centres(keys, threshold)
        assert centres.centre == centre.tolist()
        assert np.allclose(centres.ratio, ratio, rtol=1e-12)
        assert centres.members == np.flatnonzero(centre == np.arange(len(keys))).tolist()
        assert len(centres.members) < len(keys)


def test_ties_resolve_to_first_centre_and_no_key_is_its_own() -> None:
    centres = KeyCentres()
    for key in ([1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-3.0, 0.0], [0.0, 0.0], [0.0, 0.0]):
        centres.add(np.array(key))
    assert centres.centre == [0, 1, 0, 0, 4, 5]
    assert centres.ratio == [1, 1, 3, -3, 1, 1]


def test_a_denominator_that_is_not_positive_gives_zero() -> None:
    """Many scores just above a bound of a line that is negative there."""
    head = LocalityAwareHead(intervals=IntervalParameters(intervals=5), size=1, threshold=np.inf)
    step = None
    for now in range(600):
        key = np.array([0.0 if now == 0 else -5.9])
        step = head.step(np.array([1.0]), key, np.array([1.0]))
    assert step is not None
    assert step.denominator < 0
    assert not step.output.any()
