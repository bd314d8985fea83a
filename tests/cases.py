"""Every preset of every unit, as parameters of a test."""

from typing import Any

import pytest

from hdl.catalog import CATALOG
from hdl.entry import Entry
from hdl.target import Target
from testbenches.quick_form import quick_form


def is_short(entry: Entry, preset: str) -> bool:
    """Return whether the default suite simulates a preset.

    It simulates the tiny presets, which cover all corner cases, and one with a real model's
    dimensions: SmolLM2's, or else the paper's. The full suite simulates presets that take minutes,
    and tiny presets of composed units whose corner cases other testbenches cover.
    """
    if preset in entry.long:
        return False
    return preset != "paper" or "smollm2" not in entry.presets or "smollm2" in entry.long


def case(entry: Entry, preset: str, *marks: Any) -> Any:
    """Return a preset of a unit as a test's parameters."""
    return pytest.param(entry, preset, id=f"{entry.top}-{preset}", marks=marks)


CASES = [
    case(entry, preset, *([] if is_short(entry, preset) else [pytest.mark.full]))
    for entry in CATALOG
    for preset in entry.presets
]
"""All presets; those that are not short have the mark `full`."""

LINTED = [
    case(entry, preset)
    for entry in CATALOG
    for preset in entry.presets
    if preset not in entry.long and not is_short(entry, preset)
]
"""Presets whose whole design the default suite lints; only the full suite simulates them."""

EMITTED = [
    pytest.param(
        entry,
        preset,
        target,
        id=f"{entry.top}-{preset}-{target}",
        marks=[pytest.mark.full] if preset in entry.long and target is Target.ASIC else [],
    )
    for entry in CATALOG
    for preset in entry.presets
    for target in Target
    if preset in entry.long or target is not quick_form(entry.top, preset)
]
"""What is emitted and linted by module.

With `CASES` and `LINTED`, which lint a whole design in its quick form, the default suite emits and
lints every preset, and both forms of all but the long ones. The full suite has the gates of these.
"""
