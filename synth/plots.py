"""Plots of the report, as SVG text that is the same in every run."""

import io
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

OURS, THEIRS, LOGIC, FLOPS = "#c0392b", "#7f8c8d", "#2c6fa6", "#e0a030"


def area_plot(names: Sequence[str], logic: Sequence[float], flops: Sequence[float]) -> str:
    """Draw the areas of the units as bars, logic and flip-flops apart."""
    figure = Figure(figsize=(9, 0.6 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    rows = range(len(names))
    axes.barh(rows, logic, color=LOGIC, label="logic")
    axes.barh(rows, flops, left=logic, color=FLOPS, label="flip-flops")
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.set_xlabel("area, um2")
    axes.legend(frameon=False)
    return _svg(figure)


def peers_plot(groups: Mapping[str, Sequence[tuple[str, float, float, bool]]]) -> str:
    """Draw circuits that do the same work, a panel for each work.

    The points of a panel are (name, um2, ps, ours).
    """
    columns = 2
    rows = max(-(-len(groups) // columns), 1)
    figure = Figure(figsize=(11, 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    for axes, (work, points) in zip(panels, groups.items(), strict=False):
        axes.set_title(work, fontsize=9)
        axes.margins(0.25, 0.2)
        for name, area, delay, ours in points:
            color = OURS if ours else THEIRS
            axes.scatter(area, delay, s=22, color=color)
            axes.annotate(
                name,
                (area, delay),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=6,
                color=color,
            )
        axes.set_xlabel("area, um2", fontsize=7)
        axes.set_ylabel("delay, ps", fontsize=7)
        axes.tick_params(labelsize=7)
    return _svg(figure)


def _svg(figure: Figure) -> str:
    """Render a figure without its date and with fixed identifiers."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "systola", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
