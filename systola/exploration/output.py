"""Output of a sweep: fronts as plots and tables, and the modelled time for more workers."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hdl.paths import replace_text
from synth.plots import lines_plot
from synth.svg import svg
from systola.exploration.cost_model import WORKERS, larger, schedule
from systola.exploration.pictures import front, label, measured, pareto_plot, pictures, varied
from systola.exploration.results import Row

JOBS = 10_000
"""Jobs of the modelled sweep, whose times are sampled from the measured ones."""


def write_front(
    table: Sequence[Row], home: Path, sweep: str
) -> Iterator[tuple[str, list[dict[str, Any]], list[Path]]]:
    """Write the plot and the table of every front for which a sweep has figures.

    Yields
    ------
    tuple[str, list[dict[str, Any]], list[Path]]
        The front's title, the lines of its table, and the files.
    """
    lines = measured(table)
    columns = varied(lines)
    for name, (x, y) in pictures(lines).items():
        best = front(lines, x, y)
        if not best:
            continue
        shown = [
            {
                "point": label(row, columns),
                "of": row.get("netlist") or row.get("library") or row["of"],
                x.column: f"{row[x.column]:.5g}",
                y.column: f"{row[y.column]:.5g}",
            }
            for row in best
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(shown[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(shown)
        picture, sheet = home / f"pareto-{name}.svg", home / f"pareto-{name}.csv"
        title = f"{x.label} against {y.label}"
        replace_text(picture, svg(pareto_plot(lines, x, y), f"{sweep}: {title}"))
        replace_text(sheet, text.getvalue())
        yield title, shown, [picture, sheet]


def write_schedule(seconds: Sequence[float], home: Path) -> list[Path]:
    """Plot the wall time of a sweep of `JOBS` such jobs over the number of workers."""
    times = larger(seconds, JOBS)
    schedules = [schedule(times, workers) for workers in WORKERS]
    lines = {
        "longest job first": [(each.workers, each.wall) for each in schedules],
        "ideal": [(each.workers, each.ideal) for each in schedules],
    }
    file = home / "workers.svg"
    figure = lines_plot(lines, x="workers", y=f"seconds for {JOBS:,} jobs", log=True)
    replace_text(file, svg(figure, "wall time over workers"))
    return [file]
