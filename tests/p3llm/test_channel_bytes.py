"""Commands that cross the channel, counted in a waveform, against hand cases and the bench."""

from pathlib import Path

import pytest

from hdl.catalog import entry_named
from systola.comparing.channel_bytes import (
    by_instruction,
    channel_bytes,
    edges_at_one,
    instructions_of,
)
from testbenches.runner import Request, simulate

RISING = [10, 20, 30, 40, 50]


@pytest.mark.parametrize(
    ("changes", "edges"),
    [
        # A register that changes with an edge has its former value at this edge.
        ([(0, 0), (20, 1), (30, 0)], [30]),
        ([(0, 0), (20, 1), (40, 0)], [30, 40]),
        ([(0, 0), (25, 1), (28, 0)], []),
        ([(0, 1)], RISING),
        ([(0, 0), (40, 1)], [50]),
    ],
)
def test_a_signal_is_sampled_before_it_changes(
    changes: list[tuple[int, int]], edges: list[int]
) -> None:
    assert edges_at_one(changes, RISING) == edges


def test_commands_belong_to_the_latest_instruction() -> None:
    commands = {"read": [5, 10, 11, 30], "multiply": [12, 13, 29]}
    assert by_instruction(commands, [10, 29]) == [
        {"read": 2, "multiply": 2},
        {"read": 1, "multiply": 1},
    ]


def test_columns_of_the_units_do_not_cross_the_channel() -> None:
    names = ("multiply", "fill_metadata", "fill_scales")
    moved = {"read": 1, "write": 20, "write_input": 300, "write_metadata": 4000}
    assert channel_bytes(moved | {"read_result": 50000} | dict.fromkeys(names, 7), 2) == 2 * 54321


@pytest.mark.full
@pytest.mark.depends("p3llm")
def test_the_counts_are_those_of_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench counts at the ports of the banks; its facts are those of the last layer."""
    monkeypatch.setattr("testbenches.runner.BUILD", tmp_path)
    request = Request(seed=1, waves=True, fst=True, only="random_layers")
    result = simulate(entry_named("p3llm"), "tiny", request)
    assert result.passed
    (file,) = [name for name in result.outputs if name.endswith("dump.fst")]
    counts, facts = instructions_of(file)[-1], result.facts
    together = sum(counts[name] for name in ("multiply", "fill_metadata", "fill_scales"))
    assert together == facts["multiplies"] > 0
    assert counts["read"] == facts["read"] - together > 0
    assert counts["write"] == facts["write"] > 0
    assert counts["write_input"] > 0 and counts["read_result"] > 0
