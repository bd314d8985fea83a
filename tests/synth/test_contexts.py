"""Costs of cached tokens: measured, interpolated and extrapolated rows by hand."""

import copy
from typing import Any

import pytest

from synth import comparison, contexts
from tests.synth.test_normalised import HAND

RUNS = [
    {"cached": 28, "cycles": 1_000_000, "bytes": 64_000_000, "command": "run"},
    {"cached": 128, "cycles": 1_100_000, "bytes": 64_100_000, "command": "run"},
    {"cached": 528, "cycles": 1_500_000, "bytes": 64_500_000, "command": "run"},
]
"""1,000 cycles and 1,000 bytes per cached token."""


@pytest.fixture
def hand() -> dict[str, Any]:
    return copy.deepcopy(HAND) | {"contexts": copy.deepcopy(RUNS)}


@pytest.mark.parametrize(
    ("tokens", "cycles", "bytes_", "origin"),
    [
        (128, 1_100_000, 64_100_000, "measured"),
        (228, 1_200_000, 64_200_000, "interpolated"),
        (2028, 3_000_000, 66_000_000, "extrapolated from 128 and 528 cached tokens"),
    ],
)
def test_a_token_has_its_run_or_a_place_on_the_line(
    tokens: int, cycles: float, bytes_: float, origin: str, hand: dict[str, Any]
) -> None:
    here, found = contexts.at(hand, tokens)
    assert here["figures"]["cycles"] == pytest.approx(cycles)
    assert here["figures"]["bytes_per_token"] == pytest.approx(bytes_)
    assert found == origin
    # Nothing else changes, and the system keeps its own figures.
    assert here["figures"]["bound"] == hand["figures"]["bound"]
    assert hand["figures"] == HAND["figures"]


def test_a_cost_that_grows_is_that_of_the_nearest_runs(hand: dict[str, Any]) -> None:
    """Attention that other work hides costs nothing: 0 cycles per token, then 1,000."""
    hand["contexts"][0]["cycles"] = 1_100_000
    cycles = [contexts.at(hand, n)[0]["figures"]["cycles"] for n in (8, 78, 328, 1528)]
    assert cycles == pytest.approx([1_100_000, 1_100_000, 1_300_000, 2_500_000])


def test_a_calculated_entry_is_not_measured(hand: dict[str, Any]) -> None:
    hand["contexts"][1]["calculated"] = True
    assert contexts.at(hand, 128)[1] == "calculated"


def test_a_full_cache_costs_what_its_size_costs(hand: dict[str, Any]) -> None:
    hand["cached_at_most"] = 128
    here, origin = contexts.at(hand, 2048)
    assert here["figures"]["cycles"] == 1_100_000
    assert origin == "measured with 128 tokens cached, as others are evicted"


def test_tables_have_speeds_and_costs(hand: dict[str, Any]) -> None:
    tables = contexts.tables({"systems": {"hand": hand}})
    lines = tables["contexts"].splitlines()[2:]
    # 1,100,000 cycles at 400 MHz are 2.75 ms, 64.1 MB at 64 GB/s one.
    assert lines[0] == "| Hand | 128 | 1,100,000 | 64,100,000 | 363.6 | cycles | measured |"
    assert [line.split(" | ")[1] for line in lines] == ["128", "1,024", "2,048"]
    (cost,) = tables["context costs"].splitlines()[2:]
    measured = "28: 1,000,000; 128: 1,100,000; 528: 1,500,000"
    assert cost == f"| Hand | {measured} | 1,000.0; 1,000.0 | 1,000.0; 1,000.0 |"
    hand["contexts"][1]["old"] = True
    (cost,) = contexts.tables({"systems": {"hand": hand}})["context costs"].splitlines()[2:]
    assert cost.startswith("| Hand † |")
    command = comparison.commands_of(hand)["tokens with 28, 128, 528 cached"]
    assert command == "run"


@pytest.mark.parametrize(
    "system",
    [own for own in comparison.kept()["systems"].values() if "contexts" in own],
    ids=lambda own: own["name"],
)
def test_kept_runs_cost_at_least_their_bound(system: dict[str, Any]) -> None:
    runs = system["contexts"]
    assert [run["cached"] for run in runs] == sorted(run["cached"] for run in runs)
    assert all(run["bound"] <= run["cycles"] for run in runs if not run.get("calculated"))
    # The measured rows are of few cached tokens: they are close to the shortest context.
    assert runs[0]["cycles"] == pytest.approx(system["figures"]["cycles"], rel=0.02)
