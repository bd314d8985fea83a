"""The kept runs with an external memory: their table, and the bounds that no run exceeds."""

import copy
from typing import Any

import pytest

from synth import comparison, memory_runs, normalised
from testbenches.external_memory import memory_of
from tests.synth.test_normalised import HAND

RUN: dict[str, Any] = {
    "memory": "hbm2 channels=8",
    "paper": True,
    "gb_s": 128.0,
    "clock_mhz": 500.0,
    "cycles": 2_500_000,
    "waiting": 500_000,
    "port_cycles": {"latency": 1, "bandwidth": 300_000, "row": 100_000, "refresh": 99_999},
    "utilization": 0.125,
    "bytes": 80_000_000,
    "command": "make generate TOP=hand MEMORY='hbm2 channels=8'",
}
KEPT = [
    pytest.param(system, run, id=f"{key} {run['memory']}")
    for key, system in comparison.kept()["systems"].items()
    for run in system.get("with_memory", ())
]


def test_table_has_a_line_per_run() -> None:
    hand = copy.deepcopy(HAND) | {"with_memory": [RUN]}
    tables = memory_runs.tables({"systems": {"hand": hand}})
    _head, _rule, line = tables["memory runs"].splitlines()
    # 500 MHz / 2,500,000 cycles; 500 MHz / 2,000,000 cycles with ideal ports.
    name = "| Hand | `hbm2 channels=8` (the paper's) "
    assert line == name + "| 128.0 | 500 | 2,000,000 | 2,500,000 | 200.0 | 250.0 |"
    _head, _rule, line = tables["memory waits"].splitlines()
    assert line == name + "| 20.0% | bandwidth 60%, row 20%, refresh 20% | 12.5% | 80,000,000 |"
    hand["with_memory"] = [RUN | {"old": True}]
    tables = memory_runs.tables({"systems": {"hand": hand}})
    assert all("| Hand † |" in table for table in tables.values())
    assert comparison.commands_of(hand) == {"run with `hbm2 channels=8`": RUN["command"]}


@pytest.mark.parametrize(("system", "run"), KEPT)
def test_no_run_exceeds_the_bound_of_its_bandwidth(system: Any, run: dict[str, Any]) -> None:
    """Cycles and transfer overlap completely in the bound."""
    memory = memory_of(run["memory"])
    assert memory is not None
    seconds = run["cycles"] / (run["clock_mhz"] * 1e6)
    assert run["bytes"] / (run["gb_s"] * 1e9) <= seconds
    used = run["bytes"] / (run["gb_s"] * 1e9 * seconds)
    assert run["utilization"] == pytest.approx(used, rel=1e-3)
    assert 0 < run["waiting"] < run["cycles"]
    if system["memory"]["where"] == comparison.OFF_CHIP:
        assert run["gb_s"] == pytest.approx(memory.gb_s)
        figures = system["figures"]
        parts = normalised.computation_and_transfer(
            figures["bound"], run["clock_mhz"], 0.98 * figures["bytes_per_token"], run["gb_s"]
        )
        # A run with one cached token moves slightly fewer bytes than the kept one.
        assert max(parts) <= seconds * 1.02
