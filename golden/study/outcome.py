"""The outcome of a study: tables, plots, and each claim of the paper with the measured figure."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper.

    Parameters
    ----------
    what : str
        The claim.
    paper, ours : str
        The paper's figure and the measured figure.
    holds : str
        Verdict on the claimed ordering or figure: ``"yes"``, ``"no"``, ``"not measurable"``, or
        ``"partly"`` if a figure is reached under some of the conditions that were measured.
    """

    what: str
    paper: str
    ours: str
    holds: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a title, and a note with the conditions of its figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Curves over one axis.

    Parameters
    ----------
    stem : str
        Name of the files.
    title, x, y : str
        Title and labels of the axes.
    curves : Curves
        Points of each curve by name; a name that begins with "paper" selects a dashed line.
    logarithmic : bool
        Whether the x axis is logarithmic with base 2.
    points : Curves
        Measurements by name, plotted as marks without a line.
    """

    stem: str
    title: str
    x: str
    y: str
    curves: Curves
    logarithmic: bool = False
    points: Curves = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a study."""

    paper: str
    settings: Mapping[str, Any]
    claims: Sequence[Claim]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


def write_outcome(outcome: Outcome, directory: Path) -> list[Path]:
    """Write plots, page and JSON; the files appear in `directory` only when all are complete."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".partial-") as scratch:
        folder = Path(scratch)
        for plot in outcome.plots:
            _draw(plot, outcome.paper, folder)
        (folder / f"{outcome.paper}.md").write_text(markdown(outcome), encoding="utf-8")
        content = {
            "paper": outcome.paper,
            "settings": outcome.settings,
            "claims": [asdict(claim) for claim in outcome.claims],
            "figures": outcome.figures,
        }
        (folder / f"{outcome.paper}.json").write_text(json.dumps(content, indent=2) + "\n")
        return [file.replace(directory / file.name) for file in sorted(folder.iterdir())]


def markdown(outcome: Outcome) -> str:
    """Return the outcome as a Markdown page."""
    settings = ", ".join(f"{name} {value}" for name, value in outcome.settings.items())
    parts = [f"# Study: {outcome.paper}", settings + "."]
    claims = Table(
        title="The paper's claims",
        columns=("claim", "paper", "here", "holds"),
        rows=[(claim.what, claim.paper, claim.ours, claim.holds) for claim in outcome.claims],
    )
    for table in (claims, *outcome.tables):
        lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
        parts += [f"## {table.title}", *([table.note] if table.note else []), "\n".join(lines)]
    parts += [f"![{plot.title}]({outcome.paper}-{plot.stem}.svg)" for plot in outcome.plots]
    return "\n\n".join(parts) + "\n"


def _draw(plot: Plot, paper: str, folder: Path) -> None:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, (x, y) in plot.curves.items():
        axes.plot(x, y, "--" if name.startswith("paper") else "-", marker="o", ms=4, label=name)
    for (name, (x, y)), mark in zip(plot.points.items(), cycle("xsd^"), strict=False):
        axes.plot(x, y, mark, ms=7, mfc="none", label=name)
    if plot.logarithmic:
        axes.set_xscale("log", base=2)
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    with matplotlib.rc_context({"svg.hashsalt": "systola"}):
        figure.savefig(folder / f"{paper}-{plot.stem}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{paper}-{plot.stem}.png", dpi=120)
