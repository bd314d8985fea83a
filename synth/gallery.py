"""Galleries of plots in the report, with legends for their numbers."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from synth.cells import Cell, Read, Table
from synth.operators import Circuit
from synth.results import Record


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One plot as the text of an SVG image, with the legend of its numbers."""

    title: str
    svg: str
    circuits: Sequence[Circuit] = ()
    formulas: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Plots of one kind, in a number of `columns`."""

    title: str
    note: str
    columns: int
    pictures: Sequence[Picture]
    table: Table | None = None


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
