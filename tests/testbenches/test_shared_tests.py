"""Tests of the shared tests: their order of resets and work, their names, and who has them."""

import asyncio
import random
from importlib import import_module
from typing import Any

import pytest
from cocotb import regression

from hdl.catalog import CATALOG
from hdl.entry import Entry
from testbenches.shared_tests import PAIRS, reset_test, slow_stream_test, stall_test
from testbenches.streams import PAUSES


class Clock:
    """Substitute for a bench's clock: it records resets and cycles."""

    def __init__(self, events: list[Any]) -> None:
        self.events, self.rng, self.streams = events, random.Random(1), {"slow": Stream()}

    async def reset(self) -> None:
        self.events.append("reset")

    async def step(self, cycles: int) -> None:
        self.events.append(cycles)

    def pauses(self, pattern: str) -> str:
        return pattern


class Stream:
    """Substitute for a stream's driver."""

    pauses: Any = None


class RecordingBench:
    """Bench that records what a test does."""

    def __init__(self, salt: str, source: str, sink: str) -> None:
        self.events: list[Any] = [(salt, source, sink)]
        self.bench: Any = Clock(self.events)

    def offer(self, work: str) -> None:
        self.events.append(f"offer {work}")

    async def run(self, work: str) -> None:
        self.events.append(f"run {work}")


def executed(make: Any, *arguments: Any, **options: Any) -> tuple[Any, list[RecordingBench]]:
    """Return a shared test, and the benches of the execution of all its cases."""
    benches: list[RecordingBench] = []

    def connect(_dut: Any, *names: str) -> RecordingBench:
        benches.append(RecordingBench(*names))
        return benches[-1]

    test = make(connect, *arguments, **options)
    for case in test.generate_tests():
        asyncio.run(case.func(None, *case.args, **case.kwargs))
    return test, benches


def test_reset_test_resets_in_the_middle_and_compares_once_per_round() -> None:
    test, benches = executed(
        reset_test,
        lambda _bench: "new",
        begun=lambda _bench: "begun",
        longest=1,
        times=lambda _bench: 2,
        rounds=2,
    )
    assert test.name == "resets"
    around = ["reset", "offer begun", 1] * 2 + ["run new"]
    assert benches[0].events == [("resets", "random", "bursty"), *around * 2]


def test_check_after_a_reset_precedes_work() -> None:
    async def silent(bench: RecordingBench) -> None:
        bench.events.append("silent")

    _test, benches = executed(reset_test, lambda _bench: "work", longest=1, after=silent)
    assert benches[0].events[1:] == ["reset", "silent", "reset", "offer work", 1, "run work"]


def test_stall_test_runs_every_pair_of_patterns() -> None:
    test, benches = executed(stall_test, lambda _bench: "work", runs=2)
    assert len(PAIRS) == len(PAUSES) ** 2
    assert [bench.events for bench in benches] == [
        [(f"stalls {source} {sink}", source, sink), "run work", "run work"]
        for source, sink in PAIRS
    ]
    names = [case.name for case in test.generate_tests()]
    assert "stalls/source=adversarial/sink=none" in names


def test_slow_stream_test_stalls_one_stream_only() -> None:
    _test, benches = executed(slow_stream_test, lambda _bench: "work", streams=["slow"])
    assert [bench.bench.streams["slow"].pauses for bench in benches] == [
        "random",
        "bursty",
        "adversarial",
    ]
    assert {bench.events[0][1:] for bench in benches} == {("none", "none")}


def test_tests_belong_to_the_module_of_their_work() -> None:
    """Conditions of tests depend on the module under test."""
    test, _benches = executed(stall_test, lambda _bench: "work")
    assert test.func.__module__ == __name__


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_testbench_has_resets_under_the_name_of_the_four_state_tests(entry: Entry) -> None:
    members = vars(import_module(entry.testbench)).values()
    names = [one.name for one in members if isinstance(one, regression.TestGenerator)]
    assert any("resets" in name for name in names)
    assert len(names) == len(set(names)), "two tests have one name"
