"""Whatever a parameter object accepts is emitted, lints clean, and passes its testbench."""

import random
from typing import Any

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.emit import Emission
from hdl.entry import Entry
from hdl.settings import with_values
from testbenches.draws import draw
from testbenches.lint import lint_unit
from testbenches.runner import Request, simulate

UNITS = pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)

SEEDS, FULL_SEEDS = range(2), range(2, 14)

SIMULATED = ("rotary_embedding", "kv_edram", "element_serial_rotary")
"""Units that compile in seconds; the full suite simulates all."""

LONG_WALKS = 25
"""Draws of one unit whose refused steps are read."""

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "kelle-wide-words": (
        "kelle",
        {"bands": 2, "word_bytes": 4, "queries": 2, "vectors": 2},
        "outputs differ where an eDRAM row is a whole key of one head",
    ),
}
"""Legal parameters that fail: unit, changes to the last tiny preset, and what happens."""

WRONG_DRAWS = {("kelle", 0): "a step of two rows takes as long as the bench's tick"}
"""Draws that fail in simulation, and why."""


def marks(top: str, seed: int) -> list[Any]:
    """A few units are simulated by default, and what is known to fail must."""
    known = WRONG_DRAWS.get((top, seed))
    failing = [pytest.mark.xfail(strict=True, reason=known)] if known else []
    return failing if top in SIMULATED and seed == 0 else [pytest.mark.full, *failing]


def seeds() -> list[Any]:
    return [*SEEDS, *(pytest.param(seed, marks=pytest.mark.full) for seed in FULL_SEEDS)]


def simulated() -> list[Any]:
    """Every unit at every seed; by default each of a few at one."""
    return [
        pytest.param(
            entry,
            seed,
            id=f"{entry.top}-{seed}",
            marks=marks(entry.top, seed),
        )
        for entry in CATALOG
        for seed in (*SEEDS, *FULL_SEEDS)
    ]


@UNITS
def test_refusals_are_worded(entry: Entry) -> None:
    drawn = set()
    for seed in range(LONG_WALKS):
        parameters, refusals = draw(entry, random.Random(seed))
        drawn.add(parameters)
        for refusal in refusals:
            assert " must " in refusal and ", not " in refusal
    assert len(drawn) > 4


@UNITS
@pytest.mark.parametrize("seed", seeds())
def test_drawn_parameters_are_emitted_and_lint_clean(entry: Entry, seed: int) -> None:
    parameters, _refusals = draw(entry, random.Random(seed))
    emission = Emission(top=entry.unit(parameters=parameters), name=entry.top)
    assert not lint_unit(entry.top, emission), parameters


@pytest.mark.parametrize(("entry", "seed"), simulated())
def test_drawn_parameters_are_simulated(entry: Entry, seed: int) -> None:
    parameters, _refusals = draw(entry, random.Random(seed))
    result = simulate(entry, parameters, Request(seed=seed))
    assert result.passed, f"{parameters}: {result.first_failure}"
    assert result.values_checked > 0


@pytest.mark.full
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.xfail(strict=True, reason="legal parameters that are known to fail")
def test_what_is_known_to_fail_still_does(name: str) -> None:
    top, changes, _what = WRONG[name]
    entry = entry_named(top)
    small = [preset for preset in entry.presets if preset.startswith("tiny")][-1]
    parameters = with_values(entry.parameters(small), changes)
    result = simulate(entry, parameters, Request(seed=1))
    assert result.passed, result.first_failure
