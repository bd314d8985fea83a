"""What the report's tables are made of: figures that say where they were read."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hdl.paths import ROOT
from synth.results import Record


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure or a few words; the file that they were read from, and whether that is kept."""

    text: str
    link: str = ""
    kept: bool = False
    number: bool = False


EMPTY = Cell(text="", number=True)
"""The place of a figure that was not measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Makes cells of one file's figures, with links from the report's `directory`."""

    record: Record
    directory: Path

    def __call__(self, key: str, form: str) -> Cell:
        """Return one figure, or nothing where it was not measured."""
        value = self.record.values.get(key)
        return EMPTY if value is None else self.cell(form.format(value))

    def cell(self, text: str) -> Cell:
        """Return what was worked out from the file's figures."""
        link = os.path.relpath(self.record.file, self.directory)
        return Cell(text=text, link=link, kept=self.record.kept, number=True)

    def part(self, values: dict[str, Any]) -> "Read":
        """Return figures of a part of the same file."""
        return replace(self, record=replace(self.record, values=values))


def page_link(page: str, directory: Path) -> str:
    """Return the way from the report to a page below ``docs/``."""
    return os.path.relpath(ROOT / "docs" / page, directory)


def spread(low: float | None, high: float | None, form: str) -> str:
    """Return a figure of the smallest netlist and of the fastest."""
    shown = [form.format(value) for value in (low, high) if value is not None]
    return " – ".join(dict.fromkeys(shown))  # noqa: RUF001 (a range)


def scientific(value: float) -> str:
    """Return three digits, with commas between thousands."""
    return f"{float(format(value, '.3g')):,g}"
