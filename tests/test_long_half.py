"""Selection of shards of the long half, and the record of passes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from hdl.errors import UserError
from hdl.paths import ROOT
from systola import regression
from tests import long_half
from tests.dependencies import test_sources as sources
from tests.long_half import (
    MUTANTS,
    SHARD_SECONDS,
    LongHalf,
    Pass,
    chosen,
    read_record,
    shards,
    sources_digest,
    sources_of,
    write_record,
)
from tests.processor_time import ROWS, ProcessorTime, used


def lasting(seconds: float) -> Pass:
    return Pass(seconds=seconds, commit="c", sources="s")


NAMES = [f"tests/test_x.py::test_long[{index}]" for index in range(200)]
RECORD = {name: lasting(1 + index % 97) for index, name in enumerate(NAMES)}


def test_shards_contain_each_known_test_once_within_their_duration() -> None:
    unknown, longer = "tests/test_x.py::test_unknown", "tests/test_x.py::test_longer"
    record = RECORD | {longer: lasting(SHARD_SECONDS + 1)}
    divided = shards(record, [*NAMES, unknown, longer])
    assert sorted(name for shard in divided for name in shard) == sorted(NAMES)
    assert all(sum(record[name].seconds for name in shard) <= SHARD_SECONDS for shard in divided)
    # No more than twice as many as the durations require.
    assert len(divided) <= 2 * sum(last.seconds for last in RECORD.values()) / SHARD_SECONDS


def test_a_commit_selects_one_shard_and_commits_cover_all() -> None:
    mutants = [f"{MUTANTS}::test_mutants_are_decided[{unit}]" for unit in "abc"]
    record = RECORD | dict.fromkeys(mutants, lasting(20))
    names = [*NAMES, *mutants]
    commits = [f"{number:040x}" for number in range(2**161, 0, -(2**161) // 300)]
    selected = {commit: chosen(record, names, commit) for commit in commits}
    assert selected[commits[0]] == chosen(record, list(names), commits[0])
    assert all(sum(name in mutants for name in one) == 1 for one in selected.values())
    assert {name for one in selected.values() for name in one} == set(names)


def test_nothing_is_selected_without_durations() -> None:
    assert chosen({}, NAMES, "f" * 40) == []


def test_the_record_has_one_line_per_test(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    write_record(RECORD, file)
    assert read_record(file) == RECORD
    assert len(file.read_text().splitlines()) == len(RECORD) + 2
    assert read_record(tmp_path / "none.json") == {}


def test_recorded_tests_exist() -> None:
    """A renamed test keeps no pass under its former name."""
    functions: dict[str, set[str]] = {}
    for name in read_record():
        file, function = name.partition("[")[0].split("::", 1)
        if file not in functions:
            source = ROOT / file
            tree = ast.parse(source.read_text() if source.exists() else "")
            functions[file] = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function in functions[file], name


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LongHalf:
    monkeypatch.setattr(long_half, "RECORD", tmp_path / "long.json")
    monkeypatch.setattr(long_half, "DEFAULT_RECORD", tmp_path / "other.json")
    return LongHalf(ProcessorTime(), resume=True, writes=(True, True))


def finish(plugin: LongHalf, name: str, *, full: bool, failed: str = "") -> None:
    for when in ("setup", "call", "teardown"):
        report = SimpleNamespace(
            nodeid=name,
            when=when,
            passed=when != failed,
            keywords={"full": 1},
            user_properties=[("sources", "")] if full else [],
            processor_seconds=2.0,
        )
        plugin.times.pytest_runtest_logreport(report)
        plugin.pytest_runtest_logreport(report)


def test_only_tests_that_pass_in_all_phases_are_recorded(plugin: LongHalf) -> None:
    finish(plugin, "long", full=True)
    finish(plugin, "short", full=False)
    finish(plugin, "failed", full=True, failed="call")
    finish(plugin, "not cleaned", full=True, failed="teardown")
    plugin.pytest_sessionfinish()
    assert list(read_record(long_half.RECORD)) == ["long"]
    assert read_record(long_half.RECORD)["long"].seconds == 6
    assert list(read_record(long_half.DEFAULT_RECORD)) == ["short"]


class Item(SimpleNamespace):
    """A test as pytest collects it."""

    def get_closest_marker(self, name: str) -> Any:
        return self.full if name == "full" else None

    def iter_markers(self, name: str) -> Iterator[Any]:
        assert name == "depends"
        return iter([SimpleNamespace(args=units) for units in self.depends])


def test_marked_test_depends_on_its_units() -> None:
    def digest(*depends: tuple[str, ...]) -> str:
        item: Any = Item(path=Path(__file__), depends=depends)
        return sources_of(item)

    unmarked = digest()
    assert unmarked == sources_digest()
    assert digest(("softmax",)) == sources([], Path(__file__), ["softmax"])
    assert digest(("softmax",), ("argmax",)) == digest(("argmax", "softmax"))
    assert len({unmarked, digest(()), digest(("softmax",)), digest(("argmax",))}) == 4


def test_resumption_omits_tests_that_passed_with_these_sources(
    plugin: LongHalf, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = SimpleNamespace(
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
        option=SimpleNamespace(record_long=False),
    )

    def left() -> list[str]:
        items: Any = [
            Item(nodeid=name, full=True, path=Path(__file__), depends=(), user_properties=[])
            for name in ("new", "long")
        ]
        plugin.pytest_collection_modifyitems(config, items)
        return [item.nodeid for item in items]

    finish(plugin, "long", full=True)
    assert left() == ["new"]
    monkeypatch.setattr(long_half, "sources_digest", lambda: "0" * 64)
    assert left() == ["long", "new"], "the longest first"


def test_a_report_has_the_time_of_its_phase() -> None:
    moments = iter((10.0, 12.5))
    times = ProcessorTime(clock=lambda: next(moments))
    times.pytest_runtest_setup()
    phase = times.pytest_runtest_makereport()
    next(phase)
    with pytest.raises(StopIteration) as ended:
        phase.send(SimpleNamespace(nodeid="test"))
    assert ended.value.value.processor_seconds == 2.5


def test_the_table_names_the_longest_tests() -> None:
    times = ProcessorTime()
    times.seconds.update({f"test {index}": float(index) for index in range(ROWS + 10)})
    lines: list[str] = []
    reporter = SimpleNamespace(section=lines.append, write_line=lines.append)
    times.pytest_terminal_summary(reporter)
    assert len(lines) == ROWS + 2
    assert lines[1].endswith(f"test {ROWS + 9}") and lines[-1].endswith(f"all {ROWS + 10} tests")


def test_processor_time_includes_children() -> None:
    before = used()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert used() > before + 0.05


@pytest.mark.parametrize("options", [["--resume=1"], ["--resume=1", "--full=1", "--scheduler=x"]])
def test_resumption_is_refused_without_a_record(options: list[str]) -> None:
    result = CliRunner().invoke(regression.test, options)
    assert isinstance(result.exception, UserError)
    assert "RESUME=1 must be used with FULL=1" in str(result.exception)
