"""Every preset of every unit, as parameters of a test."""

from typing import Any

import pytest

from hdl.catalog import CATALOG
from hdl.entry import Entry


def is_short(entry: Entry, preset: str) -> bool:
    """Return whether every run of the default suite simulates a preset.

    It simulates each unit at its preset `tiny`, unless that takes minutes because other testbenches
    cover its corner cases. The other presets belong to the long half, from which each commit
    selects some. All presets are emitted and linted by every run.
    """
    return preset == "tiny" and preset not in entry.long


def case(entry: Entry, preset: str, *marks: Any) -> Any:
    """Return a preset of a unit as a test's parameters."""
    return pytest.param(entry, preset, id=f"{entry.top}-{preset}", marks=marks)


CASES = [
    case(entry, preset, *([] if is_short(entry, preset) else [pytest.mark.full]))
    for entry in CATALOG
    for preset in entry.presets
    if preset not in entry.emitted
]
"""All presets that can be simulated; those that are not short have the mark `full`."""
