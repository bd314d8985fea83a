"""Cycles without a transfer of weights: by hand, and of small models in Verilog."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.comparing.gaps import Trace, gaps
from tests.generation.random_models import generated
from tests.generation.test_cached_state import prepared

pytestmark = [pytest.mark.depends("kelle", "lad"), pytest.mark.usefixtures("compiled_once")]


def test_cycles_are_counted_by_the_transfers_before_them() -> None:
    rounds = [np.array(bits, np.uint8) for bits in ([0, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 0])]
    assert gaps(rounds) == {0: 3, 2: 2, 3: 1}


@pytest.mark.parametrize("top", ["kelle", "lad"])
def test_each_cycle_of_a_token_is_a_transfer_or_in_a_gap(
    top: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(top, tmp_path)
    system: Any = run.system
    trace, begin = Trace(), system.begin

    def traced(state: Any) -> None:
        begin(state)
        monkeypatch.setattr(system.host._session, "run", trace.of(system.host._session.run))

    monkeypatch.setattr(system, "begin", traced)
    generated(run)
    items = system.host.transfers if top == "lad" else system.host.beats
    rounds = [own for own in trace.rounds if own.any()][-len(items) :]
    assert [int(own.sum()) for own in rounds] == list(items)
    # Rounds without weights write rows only; Kelle's recorded cycles are all of the token's.
    recorded = sum(gaps(rounds).values()) + sum(items)
    assert recorded == sum(map(len, rounds)) <= run.progress.figures[-1]["cycles"]
