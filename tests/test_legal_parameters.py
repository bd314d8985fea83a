"""Legal parameters at the ends of their ranges: simulated, and linted."""

from dataclasses import replace
from typing import Any

import pytest

from hdl.catalog import entry_named
from hdl.emit import Emission
from testbenches.lint import lint_unit
from testbenches.quick_form import quick_form
from testbenches.runner import Request, simulate

SIMULATED = {
    "softmax": {"lanes": 4, "scores": 20, "rows": 2},
    "rms_norm": {"width": 4, "rows": 2},
    "refresh_controller": {"tick_bits": 5, "interval_bits": 1},
    "evicting_array": {"vectors": 2},
    "element_serial_softmax": {"scores": 2},
    "systolic_evictor": {"rows": 2, "slots": 2, "index_width": 1},
    "voting_engine": {"threshold.slots": 4},
}

SHORT = ("refresh_controller", "systolic_evictor")
"""Units that compile in seconds; the full suite tests all."""


def changed(top: str, changes: dict[str, Any]) -> Any:
    """Return the smallest preset with some fields changed; a dotted name is a field's field."""
    parameters = entry_named(top).parameters("tiny")
    for name, value in changes.items():
        head, _dot, tail = name.partition(".")
        inner = replace(getattr(parameters, head), **{tail: value}) if tail else value
        parameters = replace(parameters, **{head: inner})
    return parameters


@pytest.mark.parametrize(
    "top",
    [pytest.param(top, marks=[] if top in SHORT else [pytest.mark.full]) for top in SIMULATED],
)
def test_ends_of_ranges_are_simulated(top: str) -> None:
    parameters = changed(top, SIMULATED[top])
    result = simulate(entry_named(top), parameters, Request(seed=1))
    assert result.passed, result.first_failure
    assert result.values_checked > 0
    assert result.parameters == repr(parameters)


@pytest.mark.full
@pytest.mark.parametrize(
    ("top", "changes"),
    [
        ("eviction_controller", {"sinks": 0}),
        ("prefill_selector", {"eviction.sinks": 0}),
        ("eviction_controller", {"popular_above": 3}),
        ("prefill_selector", {"eviction.popular_above": 3}),
        ("kelle", {"sinks": 0}),
        ("kelle", {"vectors": 4}),
        # More sequences than two, and blocks longer than the window and the slots.
        ("kelle", {"batch": 3, "block": 9, "words": 256}),
        ("kelle", {"block": 5, "centred": True, "channel_bytes": 4, "weight_memory": 48}),
        ("kelle", {"layers": 2, "words": 128}),
        ("eviction_controller", {"layers": 3}),
    ],
)
def test_ends_of_ranges_are_lint_clean(top: str, changes: dict[str, Any]) -> None:
    unit = entry_named(top).unit(parameters=changed(top, changes))
    message = lint_unit(top, Emission(top=unit, name=top, target=quick_form(top, "tiny")))
    assert not message, message
