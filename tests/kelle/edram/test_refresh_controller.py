"""Refresh: parameter rules, the model compared with its definition, and the proof of the bound."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from golden.kelle.edram.refresh_controller import (
    RefreshModel,
    better_half,
    flip_bits,
    high_group,
    uniform_operations,
)
from golden.kelle.edram.score_groups import Decode, decode, saving
from hdl.catalog import entry_named
from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings
from testbenches.formal import MemoryRegisters, ProofError, prove
from testbenches.kelle.edram.refresh_properties import RefreshBound

pytestmark = pytest.mark.depends("kelle")

TINY = RefreshParameters(entries=3, words=2, score_bits=1, tick_bits=5, interval_bits=2)


def test_every_entry_is_refreshed_within_its_bound() -> None:
    """Induction over all cycles, for every traffic, score, settings and entry."""
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
        ({"tick_bits": 14}, r"a tick must hold a sweep, 16385 cycles, in tick_bits, not 14"),
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


def test_the_upper_half_of_the_range_is_high() -> None:
    assert np.flatnonzero(high_group(np.arange(16), 4)).tolist() == list(range(8, 16))
    assert high_group(np.arange(2), 1).tolist() == [False, True]


def test_equal_scores_complete_the_half_in_order() -> None:
    scores, valid = np.array([5, 7, 5, 5, 5, 9, 3]), np.ones(7, bool)
    assert np.flatnonzero(better_half(scores, valid)).tolist() == [0, 1, 2, 5]
    # Entries without a token are ignored, for any score.
    valid[[0, 5]] = False
    assert np.flatnonzero(better_half(scores, valid)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "layer", [pytest.param(n, marks=[] if n == 14 else pytest.mark.full) for n in range(30)]
)
def test_group_is_the_better_half_of_each_head(layer: int) -> None:
    """At least 90 % of the half by exact sums, in every head, by the bit-exact model.

    The means of the heads of layer 14 have both signs, so that a common threshold of sums that are
    not centred divides the heads and not the tokens.
    """
    captured, steps = ((0, 14, 29), 24) if layer == 14 else (tuple(range(30)), 128)
    found = decode(entry_named("kelle").parameters("smollm2"), layer, steps, captured)
    assert found.agreement().min() >= 0.9
    assert abs(found.share() - 0.5).max() < 0.1
    assert 21 < saving(float(found.share().mean())) < 26


def test_group_is_the_better_half_of_each_head_with_centred_importances() -> None:
    p = replace(entry_named("kelle").parameters("smollm2"), centred=True)
    found = decode(p, 14, 24, (0, 14, 29))
    assert found.agreement().min() >= 0.9
    assert abs(found.share() - 0.5).max() < 0.1


def test_agreement_is_that_of_a_heads_own_half() -> None:
    exact = np.array([[[4, 3, 2, 1, 0], [-4, -3, -2, -1, -9]]])
    stored = np.array([[[True] * 4 + [False]] * 2])
    found = Decode(exact, exact > 0, stored)
    assert found.agreement().tolist() == [1, 0]
    assert found.share().tolist() == [1, 0]
