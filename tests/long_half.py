"""The long half of the tests, marked `full`: a record of passes, resumption, and a rotating shard.

A default run adds one shard of the long half. The commit selects the shard, so that the same commit
always runs the same tests, and a series of commits covers the long half. `make test` loads this
module as a plugin, not by a conftest, so that its options exist for any test file.
"""

import hashlib
import json
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hdl.paths import BUILD, ROOT, replace_text
from systola.exploration.checkout import files_digest, git
from tests.dependencies import test_sources
from tests.processor_time import ROWS, ProcessorTime

RECORD = ROOT / "docs" / "long_half.json"
"""Last pass of each test of the long half; only runs with FULL=1 write it."""

DEFAULT_RECORD = BUILD / "test" / "passes.json"
"""Last pass of each other test, on this machine; every run of `make test` writes it."""

WRITE_SECONDS = 30
"""Seconds between two writes of the records, so that an interrupted run can be resumed."""

SOURCES = (
    "constraints",
    "golden",
    "hdl",
    "synth",
    "systola",
    "testbenches",
    "tests",
    "pyproject.toml",
)

SHARD_SECONDS = 120
"""Processor seconds of a shard, by the record."""

MUTANT_SECONDS = 60
"""Processor seconds of the mutants of a unit that joins a shard, by the record."""

MUTANTS = "tests/testbenches/test_random_mutants.py"


@cache
def sources_digest() -> str:
    """Return a digest of all files that a test can depend on."""
    return files_digest(SOURCES)


def sources_of(item: pytest.Item) -> str:
    """Return a digest of what a test depends on: of its units' sources, or of all sources."""
    values = getattr(item, "callspec", None)
    marks = list(item.iter_markers("depends"))
    units = [unit for mark in marks for unit in mark.args] if marks else None
    own = test_sources(values.params.values() if values else (), item.path, units)
    return own or sources_digest()


@cache
def commit() -> str:
    """Return the commit of the checkout, empty if git knows none."""
    return git("rev-parse", "--verify", "--quiet", "HEAD")


def version() -> str:
    """Return what selects a shard: the commit, or the digest of the sources without git."""
    return commit() or sources_digest()


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Last pass of a test.

    Parameters
    ----------
    seconds : float
        Processor time.
    commit : str
        Commit of the checkout, abbreviated; the working tree may differ from it.
    sources : str
        Digest of the sources, abbreviated; see `sources_of`.
    """

    seconds: float
    commit: str
    sources: str


def read_record(file: Path = RECORD) -> dict[str, Pass]:
    """Return the last pass of each test that has one, by pytest's name of the test."""
    if not file.exists():
        return {}
    return {name: Pass(**values) for name, values in json.loads(file.read_text()).items()}


def write_record(record: dict[str, Pass], file: Path = RECORD) -> None:
    """Write the record with one line for each test."""
    lines = [f"{json.dumps(name)}: {json.dumps(vars(record[name]))}" for name in sorted(record)]
    replace_text(file, "{\n" + ",\n".join(lines) + "\n}\n")


def shards(record: dict[str, Pass], names: list[str]) -> list[list[str]]:
    """Divide tests into shards of at most `SHARD_SECONDS`.

    Parameters
    ----------
    record : dict[str, Pass]
        Durations. Tests without a duration, or longer than a shard, are in no shard.
    names : list[str]
        Tests to divide.

    Returns
    -------
    list[list[str]]
        Each test once. Tests of one file are spread over the shards, by a hash of their names.
    """
    known = [name for name in names if name in record and record[name].seconds <= SHARD_SECONDS]
    divided: list[list[str]] = []
    left: list[float] = []
    for name in sorted(known, key=lambda name: hashlib.sha256(name.encode()).digest()):
        seconds = record[name].seconds
        place = next((index for index, room in enumerate(left) if seconds <= room), len(left))
        if place == len(left):
            divided.append([])
            left.append(SHARD_SECONDS)
        divided[place].append(name)
        left[place] -= seconds
    return divided


def chosen(record: dict[str, Pass], names: list[str], selected_by: str) -> list[str]:
    """Return one shard, and the random mutants of one unit.

    Parameters
    ----------
    record : dict[str, Pass]
        Durations.
    names : list[str]
        The tests of the long half.
    selected_by : str
        Hexadecimal digest, see `version`.
    """
    number = int(selected_by[:12], 16)
    divided = shards(record, [name for name in names if not name.startswith(MUTANTS)])
    shard = list(divided[number % len(divided)]) if divided else []
    mutants = [name for name in names if name.startswith(MUTANTS) and name in record]
    short = [name for name in mutants if record[name].seconds <= MUTANT_SECONDS]
    return shard + ([short[number % len(short)]] if short else [])


@dataclass(eq=False)
class LongHalf:
    """Plugin that orders the tests, selects some of the long half, and records those that pass.

    Parameters
    ----------
    times : ProcessorTime
        Durations of this run.
    rotating : bool
        Add a shard to the default run.
    resume : bool
        Leave out tests that have passed with these sources.
    writes : tuple[bool, bool]
        Write the record of the long half, and that of the other tests.
    """

    times: ProcessorTime
    rotating: bool = False
    resume: bool = False
    writes: tuple[bool, bool] = (False, False)
    long: dict[str, Pass] = field(default_factory=lambda: read_record(RECORD))
    other: dict[str, Pass] = field(default_factory=lambda: read_record(DEFAULT_RECORD))
    ran: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    written: float = field(default_factory=time.monotonic)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[pytest.Item]) -> None:
        """Mark the shard, before pytest selects by marks, and leave out what has passed.

        The longest tests run first, so that no worker runs one alone at the end.
        """
        long = {item.nodeid: item for item in items if item.get_closest_marker("full")}
        if self.rotating:
            for name in chosen(self.long, sorted(long), version()):
                long[name].add_marker("rotating")
        if self.resume:
            passed = [self._has_passed(item) for item in items]
            done = [item for item, own in zip(items, passed, strict=True) if own]
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item, own in zip(items, passed, strict=True) if not own]
        # The keywords of a report contain its folders: all would be long in a checkout named full.
        for item in items:
            if item.nodeid in long:
                sources = sources_of(item)[:12] if config.option.record_long else ""
                item.user_properties.append(("sources", sources))
        items.sort(key=lambda item: -self._duration(item.nodeid))

    def _duration(self, name: str) -> float:
        """Return the recorded duration, or a guess: simulations compile a design."""
        last = self.long.get(name) or self.other.get(name)
        return last.seconds if last else 10.0 * ("test_simulation" in name)

    def _has_passed(self, item: pytest.Item) -> bool:
        if last := self.long.get(item.nodeid):
            return sources_of(item).startswith(last.sources)
        last = self.other.get(item.nodeid)
        return last is not None and sources_digest().startswith(last.sources)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a test when all of its phases have passed."""
        properties = dict(report.user_properties)
        is_long = "sources" in properties
        if report.when == "call":
            self.notes += [text for name, text in report.user_properties if name == "long half"]
            if is_long:
                self.ran.append(report.nodeid)
            if report.passed:
                self.passed.add(report.nodeid)
        if report.when == "teardown" and report.passed and report.nodeid in self.passed:
            record = self.long if is_long else self.other
            record[report.nodeid] = Pass(
                seconds=round(self.times.seconds[report.nodeid], 1),
                commit=commit()[:12],
                sources=properties.get("sources") or sources_digest()[:12],
            )
            if time.monotonic() > self.written + WRITE_SECONDS:
                self.pytest_sessionfinish()

    def pytest_sessionfinish(self) -> None:
        """Write the records, also of an interrupted run."""
        self.written = time.monotonic()
        for writes, record, file in zip(
            self.writes, (self.long, self.other), (RECORD, DEFAULT_RECORD), strict=True
        ):
            if writes and self.passed:
                write_record(record, file)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the tests of the long half that ran, and what they noted."""
        if self.ran:
            seconds = sum(self.times.seconds[name] for name in self.ran)
            what = f"shard of {version()[:12]}" if self.rotating else "this run"
            terminalreporter.section(f"long half, {what}: {len(self.ran)} tests, {seconds:.0f} s")
            lines = [*(sorted(self.ran) if self.rotating else ()), *self.notes]
            for line in [*lines, f"{len(self.long)} tests of the long half have passed once"]:
                terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which `make test` selects and records tests."""
    group = parser.getgroup("long half")
    group.addoption("--rotating", action="store_true", help="mark a shard of the long half")
    group.addoption("--resume", action="store_true", help="leave out what passed, by the record")
    group.addoption("--record", action="store_true", help="record passes of default tests")
    group.addoption("--record-long", action="store_true", help="record passes of the long half")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins; a worker writes no record."""
    options = config.option
    times = ProcessorTime(ROWS if options.record else 0)
    writes = (options.record_long, options.record)
    if hasattr(config, "workerinput"):
        writes = (False, False)
    selection = LongHalf(times, options.rotating, options.resume, writes)
    for plugin in (times, selection):
        config.pluginmanager.register(plugin)
