"""Test that the texts of VEDA's testbench fit into any legal slots, positions and layers."""

from typing import Any

import numpy as np
import pytest

from hdl.catalog import entry_named
from hdl.settings import with_values
from hdl.veda.parameters import VedaParameters
from testbenches.veda.decode_texts import layered, mixed, mixed_layers, prompt
from testbenches.veda.decode_work import DecodeWork

ONE = {"layers": 1, "heads": 1, "kv_heads": 1, "hidden_size": 2, "scored_heads": 1, "block": 1}
SMALL = {"heads": 4, "kv_heads": 2, "head_size": 8, "hidden_size": 7, "block": 7}

SETS: list[dict[str, Any]] = [
    ONE | {"slots": 4, "context_length": 4},
    ONE | {"slots": 4, "context_length": 4, "block": 4, "vocabulary_size": 2},
    SMALL | {"slots": 8, "context_length": 8, "layers": 2},
    SMALL | {"slots": 32, "context_length": 32, "layers": 2},
    SMALL | {"slots": 16, "context_length": 64, "layers": 1, "block": 16},
]


def check(p: VedaParameters, work: DecodeWork) -> None:
    """Check the limits of the accelerator; packing has checked each instruction's fields."""
    assert work.steps
    assert max(step.length for step in work.steps) <= p.slots
    assert max(work.positions, default=0) < p.context_length
    assert set(work.layers) <= set(range(p.layers))


@pytest.mark.parametrize("changes", SETS, ids=range(len(SETS)))
def test_texts_fit_into_slots_positions_and_layers(changes: dict[str, Any]) -> None:
    p: VedaParameters = with_values(entry_named("veda").parameters("tiny"), changes)
    rng = np.random.default_rng(7)
    text = prompt(p, 2 * p.block + 2, p.block + 1, p.block, 3)
    check(p, text)
    assert text.evictions
    consecutive = layered(p, 127, 3, 3)
    check(p, consecutive)
    assert len(consecutive.steps) == 3 * min(p.layers, 3)
    for _ in range(2):
        check(p, mixed(rng, p, 6))
        check(p, mixed_layers(rng, p, 4))
