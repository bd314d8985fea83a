"""Refresh: parameter rules, the model compared with its definition, and the proof of the bound."""

from fractions import Fraction

import numpy as np
import pytest

from golden.kelle.edram.refresh_controller import (
    RefreshModel,
    flip_bits,
    high_scores,
    median_threshold,
    uniform_operations,
)
from golden.kelle.edram.score_groups import (
    decode,
    groups,
    head_agreement,
    head_share,
    pooled_high,
    saving,
)
from hdl.catalog import entry_named
from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings
from testbenches.formal import MemoryRegisters, ProofError, prove
from testbenches.kelle.edram.refresh_properties import RefreshBound

TINY = RefreshParameters(entries=3, words=2, score_bits=1, tick_bits=5, interval_bits=2)


def test_every_entry_is_refreshed_within_its_bound() -> None:
    """Induction over all cycles, for every traffic, threshold, score, settings and entry."""
    platform = MemoryRegisters()
    design = RefreshBound(TINY, platform)
    prove(design, inputs=design.inputs, depth=8, platform=platform)


def test_the_proof_needs_its_invariants() -> None:
    """Without the invariants induction fails, so the solver does search counterexamples."""
    platform = MemoryRegisters()
    design = RefreshBound(TINY, platform, invariants=False)
    with pytest.raises(ProofError, match="induction failed"):
        prove(design, inputs=design.inputs, depth=3, platform=platform)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entries": 1}, "entries must be an integer from 2 to 65536, not 1"),
        ({"words": 9}, "words must be an integer from 1 to 8, not 9"),
        ({"score_bits": 0}, "score_bits must be an integer from 1 to 8, not 0"),
        ({"tick_bits": 40}, "tick_bits must be an integer from 4 to 32, not 40"),
        ({"tick_bits": 14}, r"a tick must hold .* 16419 cycles, in tick_bits, not 14"),
        ({"interval_bits": 17}, "interval_bits must be an integer from 1 to 16, not 17"),
    ],
)
def test_dimensions_out_of_range(change: dict[str, int], message: str) -> None:
    """Each message contains the rule and the value."""
    with pytest.raises(ValueError, match=message):
        RefreshParameters(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tick_cycles": 316_384}, r"timeout \+ sweep = 300000 \+ 16385 = 316385, not 316384"),
        ({"tick_cycles": 1 << 20}, "tick_cycles must be an integer from 1 to 1048575"),
        ({"msb_hst": 5}, "msb_hst must be at most msb_lst = 4, not 5"),
        ({"lsb_lst": 14}, "lsb_hst must be at most lsb_lst = 14, not 15"),
        ({"lsb_lst": 32}, "lsb_lst must be an integer from 1 to 31, not 32"),
        ({"msb_hst": 0}, "msb_hst must be an integer from 1 to 31, not 0"),
    ],
)
def test_settings_out_of_range(change: dict[str, int], message: str) -> None:
    """A tick too short for a sweep, and intervals in the wrong order."""
    with pytest.raises(ValueError, match=message):
        RefreshSettings(parameters=RefreshParameters(), **change)


def test_default_settings_are_the_papers() -> None:
    """0.36, 1.44, 5.4 and 7.2 ms at 1 GHz."""
    s = RefreshSettings(parameters=RefreshParameters())
    ticks = [s.msb_hst, s.msb_lst, s.lsb_hst, s.lsb_lst]
    assert [t * s.tick_cycles / 1e6 for t in ticks] == [0.36, 1.44, 5.4, 7.2]


def test_median_splits_distinct_scores_in_half() -> None:
    """Half of 16 distinct scores are at or above the threshold; invalid ones are ignored."""
    scores, valid = np.arange(16), np.ones(16, bool)
    assert median_threshold(scores, valid, 4) == 8
    assert median_threshold(scores, scores < 8, 4) == 4
    assert median_threshold(scores * 0 + 5, valid, 4) == 5
    assert median_threshold(scores, ~valid, 4) == 15


def test_equal_scores_complete_the_half_in_order() -> None:
    scores, valid = np.array([5, 7, 5, 5, 5, 9, 3]), np.ones(7, bool)
    assert np.flatnonzero(high_scores(scores, valid)).tolist() == [0, 1, 2, 5]
    # Entries without a token are ignored, for any score.
    valid[[0, 5]] = False
    assert np.flatnonzero(high_scores(scores, valid)).tolist() == [1, 2, 3]


def test_half_of_a_real_decode_is_in_the_high_score_group() -> None:
    """With the hardware's bits of a score; compared with exact sums of the same scores."""
    found = groups(entry_named("kelle").parameters("smollm2"), 29, 4, steps=12)
    assert found.threshold_share > 0.6
    assert 0.5 <= found.share < 0.503
    assert 23.3 < saving(found.share) < 23.42
    assert found.agreement > 0.7


def test_operations_against_a_uniform_sweep() -> None:
    """23.4 times fewer than every 45 us, and 2.93 times fewer than every 0.36 ms."""
    p = RefreshParameters()
    model = RefreshModel(p, RefreshSettings(parameters=p))
    for entry in range(p.entries):
        model.change(entry, entry % 16, True)
    for _ in range(60):
        model.tick()
    tick = Fraction(36, 100)
    words = 2 * p.entries * p.words
    refreshed = int(model.counts.sum())
    uniform = uniform_operations(60, tick, Fraction(45, 1000), words)
    assert float(uniform / refreshed) == pytest.approx(23.41, abs=0.01)
    assert float(uniform_operations(60, tick, tick, words) / refreshed) == pytest.approx(
        2.93, abs=0.005
    )


def test_an_entry_that_always_changes_sides_is_refreshed() -> None:
    """LST in every HST sweep and HST in every LST sweep: refreshed in each LST sweep."""
    p = RefreshParameters(entries=4, words=1)
    settings = RefreshSettings(parameters=p, tick_cycles=100, timeout=10, msb_hst=1, msb_lst=2)
    model = RefreshModel(p, settings)
    for entry in range(1, 4):
        model.change(entry, 8, True)
    seen = []
    for tick in range(1, 9):
        model.change(0, 15 if tick % 2 == 0 else 0, True)
        seen.append(0 in model.tick()[0])
    # As LST it is due in even ticks only, when it is HST; its changed group makes it due.
    assert seen == [False, True] + [True] * 6


def test_injected_flips_have_the_given_rates() -> None:
    """Each half and group has its own rate, and the sign bit is among the flips."""
    rng = np.random.default_rng(5)
    hst = np.arange(400) % 2 == 0
    rates = np.array([[0.0, 0.1], [0.02, 0.3]])
    flipped = flip_bits(np.zeros((400, 500), np.int64), hst, rates, rng) & 0xFFFF
    bits = (flipped[..., np.newaxis] >> np.arange(16)) & 1
    for half, which in enumerate((slice(8, 16), slice(0, 8))):
        for group, tokens in enumerate((hst, ~hst)):
            share = bits[tokens][..., which].mean()
            assert share == pytest.approx(rates[half, group], abs=0.002)


def test_one_histogram_does_not_hold_the_better_half_of_each_head() -> None:
    """The page's statement, on real scores: the means of a layer's heads determine the split."""
    found = decode(entry_named("kelle").parameters("smollm2"), 29, 4, steps=12)
    high = pooled_high(found.coarse, found.stored)
    np.testing.assert_allclose(head_share(high, found.stored).mean(), 0.5, atol=0.01)
    assert head_agreement(found.exact, high, found.stored).min() < 0.5
    alone = np.concatenate(
        [
            pooled_high(found.coarse[:, head : head + 1], found.stored[:, head : head + 1])
            for head in range(found.stored.shape[1])
        ],
        axis=1,
    )
    np.testing.assert_allclose(head_share(alone, found.stored), 0.5, atol=0.01)


def test_agreement_is_that_of_a_heads_own_half() -> None:
    exact = np.array([[[4, 3, 2, 1, 0], [-4, -3, -2, -1, -9]]])
    stored = np.array([[[True] * 4 + [False]] * 2])
    high = pooled_high(exact, stored)
    assert high[0].tolist() == [[True] * 4 + [False], [False] * 5]
    assert head_agreement(exact, high, stored).tolist() == [1, 0]
    assert head_share(high, stored).tolist() == [1, 0]
