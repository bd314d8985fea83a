"""Galleries of plots in the report, with notes for their numbers."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl.paths import ROOT
from synth.cells import Cell, Read, Table
from synth.results import Record
from synth.svg import LARGEST, SMALLEST, width_at

DIES = ROOT / "docs" / "layout" / "dies.svg"
"""Picture of the dies of units; `synth.layout.dies` writes it."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One numbered line below a plot.

    Parameters
    ----------
    text, link : str
        The line, and the file of its figure.
    command : str
        The command that measures the figure.
    color : str
        Name of a variable of `synth.svg.VARIABLES`; empty for the colour of notes.
    """

    text: str
    link: str = ""
    command: str = ""
    color: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One plot as the text of an SVG image, with its numbered notes."""

    title: str
    svg: str
    notes: Sequence[Note] = ()
    caption: str = ""

    @property
    def widths(self) -> str:
        """CSS: each text is legible, and not all of them are larger than the report's text."""
        if not (least := width_at(self.svg, SMALLEST)):
            return ""
        return f"min-width: {least}px; max-width: {width_at(self.svg, LARGEST)}px"


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Plots of one kind, in a number of `columns`; `table` has their figures."""

    title: str
    note: str
    columns: int
    pictures: Sequence[Picture]
    table: Table | None = None

    @property
    def anchor(self) -> str:
        """The identifier of the section."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def laid_out(file: Path = DIES) -> Gallery:
    """Return the picture of the dies."""
    text = file.read_text()
    return Gallery(
        title="Dies",
        note=(
            "One unit of each paper in OSU018, placed and routed by make layout; memories are cut "
            "to ports. A cell has the colour of the source file of the nearest register "
            "downstream. The scales differ. The page docs/layout.md has clocks, DRC and LVS."
        ),
        columns=1,
        pictures=[Picture(title="", svg=text[text.index("<svg") :])],
    )


def explored(sweeps: Sequence[Record], directory: Path) -> Gallery:
    """Return the Pareto fronts of parameter sweeps, with their points as a table."""
    pictures: list[Picture] = []
    rows: list[list[Cell]] = []
    for sweep in sweeps:
        for title, stem in sweep.values.get("fronts", {}).items():
            home = sweep.file.parent
            name = f"{sweep.values['sweep']}: {title}"
            pictures.append(Picture(title=name, svg=(home / f"{stem}.svg").read_text()))
            front = Record(file=home / f"{stem}.csv")
            with front.file.open(newline="") as lines:
                points = list(csv.reader(lines))[1:]
            read = Read(record=front, directory=directory)
            rows += [
                [Cell(text=name), Cell(text=point), Cell(text=of), read.cell(x), read.cell(y)]
                for point, of, x, y in points
            ]
    return Gallery(
        title="Explored parameters",
        note=(
            "Sweeps of this build. Points that no other beats in both figures are tied together "
            "and labelled by the parameters that the sweep varies, in the sequence of the plot's "
            "title; lower and further left is better."
        ),
        columns=2,
        pictures=pictures,
        table=Table(columns=("sweep", "point", "of", "across", "up"), rows=rows),
    )
