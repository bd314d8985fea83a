"""Pareto fronts: the points that no other point dominates in two figures, and their plots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from synth.plots import draw_points
from systola.exploration.results import Row


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A figure of merit; lower is better.

    Parameters
    ----------
    column : str
        Column in the table of `measured`.
    label : str
        Name with unit.
    """

    column: str
    label: str


AREA = Axis(column="area_um2", label="area, µm²")
DELAY = Axis(column="critical_path_ps", label="critical path, ps")
CYCLES = Axis(column="cycles", label="cycles of the simulation")
ENERGY = Axis(column="energy_nj", label="energy of the simulation, nJ")
ERROR = Axis(column="rms_error", label="error against float64, rms")
LUT = Axis(column="lut", label="LUT")
PERIOD = Axis(column="period_ns", label="clock period, ns")
BUDGET = Axis(column="budget", label="tokens in a cache")
PERPLEXITY = Axis(column="perplexity", label="perplexity")

PICTURES: tuple[tuple[Axis, Axis], ...] = (
    (AREA, DELAY), (AREA, CYCLES), (ERROR, ENERGY), (LUT, PERIOD), (LUT, CYCLES),
    (BUDGET, PERPLEXITY),
)  # fmt: skip
"""Pairs of figures that are plotted if a sweep has both."""


def measured(table: Sequence[Row]) -> list[Row]:
    """Return one line per netlist or device, with the results of its point's simulations.

    Cycles and errors are means over the seeds. Energy is the power at the netlist's own clock times
    the duration of the simulation's cycles at this clock.
    """
    simulated: dict[str, Row] = {}
    for point in dict.fromkeys(row["point"] for row in table):
        runs = [row for row in table if row["point"] == point and row["verb"] == "sim"]
        names = {n for row in runs for n, v in row.items() if isinstance(v, float | int)}
        known = {n: fmean(row[n] for row in runs if row.get(n) is not None) for n in names}
        simulated[point] = {n: known[n] for n in ("cycles", "rms_error") if n in known}
    lines = []
    for row in table:
        if row["verb"] == "sim":
            continue
        line = row | simulated[row["point"]]
        if line.get("fmax_mhz") and line.get("lut") is not None:
            line["period_ns"] = 1000 / line["fmax_mhz"]
        if line.get("power_mw") and line.get("fmax_mhz") and line.get("cycles"):
            line["energy_nj"] = line["power_mw"] / line["fmax_mhz"] * line["cycles"]
        lines.append(line)
    return lines


def varied(table: Sequence[Row]) -> list[str]:
    """Return the columns of parameters that differ within a table."""
    columns = [name for name in (table[0] if table else {}) if name.startswith("parameter.")]
    return [name for name in columns if len({row[name] for row in table}) > 1]


def label(row: Row, columns: Sequence[str]) -> str:
    """Return a point's name from the parameters that differ."""
    return " ".join(f"{name.rpartition('.')[2]}={row[name]}" for name in columns) or row["point"]


def front(table: Sequence[Row], x: Axis, y: Axis) -> list[Row]:
    """Return the points that no other dominates or equals, in order of increasing `x`."""
    known = [row for row in table if _known(row, x) and _known(row, y)]
    found: list[Row] = []
    for row in sorted(known, key=lambda row: (row[x.column], row[y.column])):
        if not found or row[y.column] < found[-1][y.column]:
            found.append(row)
    return found


def pareto_plot(table: Sequence[Row], x: Axis, y: Axis) -> Figure:
    """Plot all points, with the front as a line with labelled points."""
    best = front(table, x, y)
    known = [row for row in table if _known(row, x) and _known(row, y)]
    columns = varied(table)
    return draw_points(
        others=[(row[x.column], row[y.column]) for row in known if row not in best],
        front=[(row[x.column], row[y.column]) for row in best],
        labels=[_short(row, columns) for row in best],
        title=" / ".join(name.rpartition(".")[2] for name in columns),
        x=x.label,
        y=y.label,
    )


def pictures(table: Sequence[Row]) -> Mapping[str, tuple[Axis, Axis]]:
    """Return the pairs of figures that a table contains, by the names of their files."""
    names = {name for row in table for name, value in row.items() if value is not None}
    return {
        f"{x.column}-{y.column}": (x, y)
        for x, y in PICTURES
        if x.column in names and y.column in names
    }


def _short(row: Row, columns: Sequence[str]) -> str:
    """Return a point's name from its values alone, in the order of the plot's title."""
    return " / ".join(str(row[name]) for name in columns)


def _known(row: Mapping[str, Any], axis: Axis) -> bool:
    value = row.get(axis.column)
    return value is not None and math.isfinite(value) and value > 0
