"""The report's table of tests that only `FULL=1` runs: what has passed, and at which commits."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hdl.paths import ROOT
from synth.cells import Read, Table
from synth.results import Record

FILE = ROOT / "docs" / "long_half.json"
"""Last pass of each test; a run with `FULL=1` writes it."""


def long_tests(directory: Path, file: Path = FILE) -> Table:
    """Return a row for each file of tests, and one for all.

    Parameters
    ----------
    directory : Path
        Folder of the report.
    file : Path
        For each test, processor seconds and commit of its last pass.
    """
    record = replace(Record.read(file), kept=True)
    files: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, last in sorted(record.values.items()):
        files.setdefault(name.partition("::")[0], {})[name] = last
    cell = Read(record=record, directory=directory).cell
    rows = [
        [
            replace(cell(title), number=False),
            cell(f"{len(passes):,}"),
            cell(f"{sum(last['seconds'] for last in passes.values()):,.0f}"),
            replace(
                cell(", ".join(sorted({last["commit"][:8] for last in passes.values()}))),
                number=False,
            ),
        ]
        for title, passes in [*files.items(), ("all", record.values)]
    ]
    return Table(columns=("file", "passed", "processor seconds", "commits"), rows=rows)
