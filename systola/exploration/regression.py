"""The tests as jobs on a cluster: a job has those of a file, or of one unit at a preset."""

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
        A test file, or one with a unit and a preset behind it.
    tests : tuple[str, ...]
        Pytest's names of the tests.
    """

    name: str
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What became of a group: how many tests, where, and what pytest said if one failed."""

    name: str
    worker: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    log: str = ""


def collect(selection: Sequence[str], units: Collection[str]) -> list[Group]:
    """Ask pytest for the tests that a selection has, and group them.

    Parameters
    ----------
    selection : Sequence[str]
        Pytest's arguments: files, ``-m``, ``-k``.
    units : Collection[str]
        Names that make a test's first parameter a unit's.

    Raises
    ------
    UserError
        If there is no such test.
    """
    asked = _pytest("--collect-only", "-q", *selection)
    names = [line for line in asked.stdout.splitlines() if "::" in line and " " not in line]
    if not names:
        raise UserError(
            f"tests must be there, and pytest finds none: {asked.stdout.strip()[-300:]}"
        )
    return group(names, units)


def group(names: Sequence[str], units: Collection[str]) -> list[Group]:
    """Put tests of one unit and preset together, and the others of a file."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found = _PARAMETRISED.match(name)
        if found and found["unit"] in units:
            groups[f"{found['file']} {found['unit']} {found['preset']}"].append(name)
        else:
            groups[name.partition("::")[0]].append(name)
    return [Group(name=name, tests=tuple(tests)) for name, tests in groups.items()]


def run_group(tests: Group) -> GroupResult:
    """Run a group's tests in a process of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "junit.xml")
        # Names beyond what a command line may hold go by a file.
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
    """Count what passed and failed, and where it ran."""
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
