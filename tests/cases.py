"""Every preset of every unit, as parameters of a test."""

import pytest

from hdl.catalog import CATALOG

CASES = [
    pytest.param(
        entry,
        preset,
        id=f"{entry.top}-{preset}",
        marks=[pytest.mark.full] if preset in entry.long else [],
    )
    for entry in CATALOG
    for preset in entry.presets
]
"""Entry and preset; those that take minutes are left to the full suite."""
