"""Tests as jobs on a cluster: one job per test file, or per unit and preset of a file."""

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import node

from junitparser import JUnitXml

from hdl.errors import UserError
from hdl.paths import ROOT

_PARAMETRISED = re.compile(r"(?P<file>[^:]+)::.*\[(?P<unit>\w+)[-/](?P<preset>\w+)")
LOG_LINES = 60


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tests that run in one process.

    Parameters
    ----------
    name : str
        A test file, followed by a unit and a preset if the group is for one.
    tests : tuple[str, ...]
        Pytest's names of the tests.
    """

    name: str
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """The result of a group: counts of tests, the machine, and pytest's output after a failure."""

    name: str
    worker: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    log: str = ""


def collect(selection: Sequence[str], units: Collection[str]) -> list[Group]:
    """Collect the tests of a selection with pytest, and group them.

    Parameters
    ----------
    selection : Sequence[str]
        Pytest's arguments: files, ``-m``, ``-k``.
    units : Collection[str]
        Names of units; a test whose first parameter is one of them belongs to that unit.

    Raises
    ------
    UserError
        If no test matches.
    """
    collected = _pytest("--collect-only", "-q", *selection)
    names = [line for line in collected.stdout.splitlines() if "::" in line and " " not in line]
    if not names:
        output = collected.stdout.strip()[-300:]
        raise UserError(f"the selection must contain a test; pytest finds none: {output}")
    return group(names, units)


def group(names: Sequence[str], units: Collection[str]) -> list[Group]:
    """Group tests by file, unit and preset; tests without a unit by file."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found = _PARAMETRISED.match(name)
        if found and found["unit"] in units:
            groups[f"{found['file']} {found['unit']} {found['preset']}"].append(name)
        else:
            groups[name.partition("::")[0]].append(name)
    return [Group(name=name, tests=tuple(tests)) for name, tests in groups.items()]


def run_group(tests: Group) -> GroupResult:
    """Run a group's tests in a separate process."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "junit.xml")
        # The names may exceed the length of a command line, so pytest reads them from a file.
        arguments = Path(scratch, "tests")
        arguments.write_text("\n".join(tests.tests))
        ran = _pytest("-q", f"--junitxml={report}", f"@{arguments}")
        if not report.exists():
            return GroupResult(
                name=tests.name,
                worker=node(),
                passed=0,
                failed=len(tests.tests),
                skipped=0,
                seconds=0,
                log="\n".join((ran.stdout + ran.stderr).splitlines()[-LOG_LINES:]),
            )
        suite = JUnitXml.fromfile(str(report))
        counts = [int(each or 0) for each in (suite.tests, suite.failures, suite.errors)]
        failed, skipped = counts[1] + counts[2], int(suite.skipped or 0)
        return GroupResult(
            name=tests.name,
            worker=node(),
            passed=counts[0] - failed - skipped,
            failed=failed,
            skipped=skipped,
            seconds=float(suite.time or 0),
            log="\n".join(ran.stdout.splitlines()[-LOG_LINES:]) if failed else "",
        )


def closing_line(results: Sequence[GroupResult]) -> str:
    """Return the summary line: tests passed, failed and skipped, and tests per machine."""
    counts = [sum(getattr(result, name) for result in results) for name in ("passed", "failed")]
    skipped = sum(result.skipped for result in results)
    places: dict[str, int] = defaultdict(int)
    for result in results:
        places[result.worker] += result.passed + result.failed + result.skipped
    ran = ", ".join(f"{count:,} on {worker}" for worker, count in sorted(places.items()))
    return f"{counts[0]} passed, {counts[1]} failed, {skipped} skipped ({ran})"


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
