"""Every preset of every unit, as parameters of a test."""

from pathlib import Path

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

PORTS = Path(__file__).with_name("ports.json")
"""The ports of every unit: an interface. To change one on purpose, change it there too."""
