"""Elements of the report's tables: cells with links to the files of their figures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hdl.paths import ROOT
from synth.results import Record


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A figure or a short text, with a link to its file, and whether it is from `docs/`."""

    text: str
    link: str = ""
    kept: bool = False
    number: bool = False


EMPTY = Cell(text="", number=True)
"""The cell for a figure that was not measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Creates cells from one file's figures, with links relative to the report's `directory`."""

    record: Record
    directory: Path

    def __call__(self, key: str, form: str) -> Cell:
        """Return the cell of a figure, or `EMPTY` if it was not measured."""
        value = self.record.values.get(key)
        return EMPTY if value is None else self.cell(form.format(value))

    def cell(self, text: str) -> Cell:
        """Return the cell of a value that is derived from the file's figures."""
        link = os.path.relpath(self.record.file, self.directory)
        return Cell(text=text, link=link, kept=self.record.kept, number=True)

    def part(self, values: dict[str, Any]) -> "Read":
        """Return a reader for a part of the same file."""
        return replace(self, record=replace(self.record, values=values))


def page_link(page: str, directory: Path) -> str:
    """Return the path from the report to a page below ``docs/``."""
    return os.path.relpath(ROOT / "docs" / page, directory)


def spread(low: float | None, high: float | None, form: str) -> str:
    """Return a figure of the area-optimised and of the delay-optimised netlist, as a range."""
    shown = [form.format(value) for value in (low, high) if value is not None]
    return " – ".join(dict.fromkeys(shown))  # noqa: RUF001 (a range)


def scientific(value: float) -> str:
    """Return three digits, with commas between thousands."""
    return f"{float(format(value, '.3g')):,g}"
