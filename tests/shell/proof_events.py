"""Events that the bounded proofs of the AXI4 masters must reach, as parameters of a test."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def event_cases(events: Mapping[bool, Sequence[str]]) -> list[Any]:
    """Return the cases of a master's events without and with flushes.

    The default suite has the first event of each kind; the full suite has all.
    """
    return [
        pytest.param(flushes, event, marks=[] if number == 0 else [pytest.mark.full])
        for flushes, own in events.items()
        for number, event in enumerate(own)
    ]
