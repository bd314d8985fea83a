"""Every preset of every unit, as parameters of a test."""

from typing import Any

import pytest

from hdl.catalog import CATALOG
from hdl.entry import Entry


def is_short(entry: Entry, preset: str) -> bool:
    """Tell whether the default suite simulates a preset.

    It has the tiny ones, which turn every corner, and one of the size of a real model: SmolLM2's,
    else the paper's. Those that take minutes are left to the full suite, and tiny ones of composed
    units whose own corners are those of a part or of the whole, which have benches of their own.
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
"""All; those that are not short are marked for the full suite."""

LINTED = [
    case(entry, preset)
    for entry in CATALOG
    for preset in entry.presets
    if preset not in entry.long and not is_short(entry, preset)
]
"""Those that the default suite emits and lints, and leaves to the full suite to simulate."""
