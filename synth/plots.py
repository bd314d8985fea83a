"""Plots of the report and of `docs/`.

Labels cannot overlap. Circuits are numbered, and a table contains their names; each number is
placed at a free position. Each bar has a row with labels to its left and right.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from synth.operators import Circuit
from synth.svg import INK, KEPT, LINES, MUTED, OURS, SHEET, THEIRS

MARKERS = {"plain": "o", "area": "s", "speed": "^"}
"""Markers by recipe; circuits of other projects are mapped by ``plain``."""

_SMALL, _SIZE = 10, 11
_DIRECTIONS = 16


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row of a bar plot.

    Parameters
    ----------
    name, words : str
        Labels to the left and to the right.
    value : float
        Length of the bar.
    reference : float, optional
        The paper's figure, plotted as a mark.
    kept : bool
        Whether the figure is from `docs/figures.json`; its bar has a pale colour.
    """

    name: str
    words: str
    value: float
    reference: float | None = None
    kept: bool = False


def bars_plot(bars: Sequence[Bar], *, label: str, limits: tuple[float, float]) -> Figure:
    """Return a plot with one row per bar, on an axis between the limits."""
    figure = Figure(figsize=(7.6, 0.75 + 0.3 * len(bars)), layout="constrained")
    axes = figure.subplots()
    rows = range(len(bars))
    low, high = limits
    axes.set(xlim=limits, ylim=(len(bars) - 0.4, -0.6), xlabel=label)
    lengths = [min(bar.value, high) - low for bar in bars]
    colors = [KEPT if bar.kept else OURS for bar in bars]
    axes.barh(rows, lengths, left=low, height=0.62, color=colors)
    for row, bar in enumerate(bars):
        if bar.reference is not None:
            axes.plot(bar.reference, row, "D", markersize=6, color=THEIRS, markeredgecolor=SHEET)
        axes.annotate(
            bar.words, (1, row), xycoords=("axes fraction", "data"), xytext=(8, 0),
            textcoords="offset points", fontsize=_SMALL, color=MUTED, va="center",
        )  # fmt: skip
    _plain(axes)
    axes.set_yticks(rows, [bar.name for bar in bars], fontsize=_SIZE, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    return figure


def peers_plot(circuits: Sequence[Circuit]) -> Figure:
    """Return a plot of circuits with the same function, numbered from 1."""
    figure = Figure(figsize=(4.9, 3.1), layout="constrained")
    _draw_circuits(figure.subplots(), circuits)
    _number(figure, [(figure.axes[0], circuits)])
    return figure


def all_peers_plot(groups: Mapping[str, Sequence[Circuit]]) -> Figure:
    """Return a plot with one panel per function."""
    columns = 2
    rows = max(-(-len(groups) // columns), 1)
    figure = Figure(figsize=(10.4, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    for axes, (work, circuits) in zip(panels, groups.items(), strict=False):
        axes.set_title(work, fontsize=_SIZE + 1, color=INK)
        _draw_circuits(axes, circuits)
    _number(figure, list(zip(panels, groups.values(), strict=False)))
    return figure


def draw_points(
    *,
    others: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float]],
    labels: Sequence[str],
    title: str,
    x: str,
    y: str,
) -> Figure:
    """Return a plot of points, with a front as a line with labelled points.

    Parameters
    ----------
    others, front : Sequence[tuple[float, float]]
        Points not on the front, and points on it from left to right.
    labels : Sequence[str]
        A label for each point of the front; replaced by numbers if the space is insufficient.
    title : str
        Names of the parameters in the labels.
    x, y : str
        Labels of the axes.
    """

    def drawn() -> Figure:
        figure = Figure(figsize=(7.6, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.margins(0.12, 0.14)
        axes.plot(*zip(*others, strict=True) if others else ((), ()), ".", color=KEPT, markersize=6)
        axes.step(*zip(*front, strict=True), where="post", color=OURS, linewidth=1, alpha=0.5)
        axes.plot(*zip(*front, strict=True), "o", color=OURS, markersize=7, markeredgecolor=SHEET)
        axes.set_title(title, fontsize=_SIZE, color=MUTED, loc="left")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        _plain(axes)
        axes.grid(color=LINES, linewidth=0.6)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    tied, colors = [[point] for point in front], [INK] * len(front)
    figure = drawn()
    try:
        place_numbers(figure.axes[0], tied, colors, inch=figure.dpi, labels=labels)
    except ValueError:
        figure = drawn()
        place_numbers(figure.axes[0], tied, colors, inch=figure.dpi)
    return figure


def lines_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str, log: bool = False
) -> Figure:
    """Return a plot of lines, each with its name at its end."""
    figure = Figure(figsize=(7.6, 4.2), layout="constrained")
    axes = figure.subplots()
    shades = (OURS, THEIRS, MUTED, KEPT)
    for (name, points), color in zip(lines.items(), shades, strict=False):
        axes.plot(
            *zip(*points, strict=True), "o-", color=color, markersize=5, linewidth=1.2, label=name
        )
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False, fontsize=_SMALL, labelcolor=MUTED)
    _plain(axes)
    axes.grid(color=LINES, linewidth=0.6)
    return figure


def _draw_circuits(axes: Axes, circuits: Sequence[Circuit]) -> None:
    """Plot the points of circuits, with a line between the points of each circuit."""
    axes.margins(0.14, 0.16)
    for circuit in circuits:
        color = OURS if circuit.ours else THEIRS
        areas, delays = zip(*((area, delay) for _, area, delay in circuit.points), strict=True)
        axes.plot(areas, delays, color=color, linewidth=1, alpha=0.45)
        for recipe, area, delay in circuit.points:
            axes.plot(
                area, delay, MARKERS[recipe], color=color, markersize=7, markeredgecolor=SHEET
            )
    axes.set_xlabel("area, µm²", fontsize=_SMALL)
    axes.set_ylabel("delay, ps", fontsize=_SMALL)
    _plain(axes)
    axes.grid(color=LINES, linewidth=0.6)
    axes.locator_params(nbins=5)


def _number(figure: Figure, panels: Sequence[tuple[Axes, Sequence[Circuit]]]) -> None:
    """Place each circuit's number next to its first point."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes, circuits in panels:
        tied = [[point[1:] for point in circuit.points] for circuit in circuits]
        colors = [OURS if circuit.ours else THEIRS for circuit in circuits]
        place_numbers(axes, tied, colors, inch=figure.dpi)


def place_numbers(
    axes: Axes,
    tied: Sequence[Sequence[tuple[float, float]]],
    colors: Sequence[str],
    *,
    inch: float,
    labels: Sequence[str] | None = None,
) -> None:
    """Place a number from 1 for each line of points, at a free position near its first point.

    Parameters
    ----------
    axes : Axes
        The axes, with final limits and position in the figure.
    tied : Sequence[Sequence[tuple[float, float]]]
        Plotted points of each line; no number may cover points or lines.
    colors : Sequence[str]
        The numbers' colours.
    inch : float
        Pixels per inch of the figure.
    labels : Sequence[str], optional
        Labels that replace the numbers.

    Raises
    ------
    ValueError
        If there is no free position for a number.
    """
    lines = [axes.transData.transform(list(points)) for points in tied]
    taken = [_around(x, y, 0.05 * inch) for line in lines for x, y in line]
    for start, end in (pair for line in lines for pair in pairwise(line)):
        between = (start + (end - start) * step / 64 for step in range(1, 64))
        taken += [_around(x, y, 1.0) for x, y in between]
    words = labels or [str(number) for number in range(1, len(tied) + 1)]
    for word, points, color in zip(words, tied, colors, strict=True):
        text = axes.text(0, 0, word, fontsize=_SIZE, color=color, ha="center", va="center")
        box = text.get_window_extent()
        x, y = axes.transData.transform(points[0])
        for away, (right, up) in _places():
            center = x + right * away * inch, y + up * away * inch
            place = _around(*center, box.width / 2, box.height / 2)
            inside = all(axes.bbox.contains(*corner) for corner in place.corners())
            if inside and not any(place.overlaps(other) for other in taken):
                break
        else:
            raise ValueError(f"a plot of {len(tied)} circuits has no room for {word}")
        taken.append(place)
        at_x, at_y = axes.transData.inverted().transform(center)
        text.set_position((at_x, at_y))
        if away > _NEAR:
            axes.annotate(
                "", points[0], xytext=(at_x, at_y),
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 6},
            )  # fmt: skip


_NEAR = 0.16
"""Maximum distance in inches between a point and a number without a connecting line."""


def _places() -> Iterator[tuple[float, tuple[float, float]]]:
    """Yield the candidate positions of a number: distance in inches, and direction."""
    rings = [0.13 + 0.03 * ring for ring in range(60)]
    turns = [2 * math.pi * turn / _DIRECTIONS for turn in range(_DIRECTIONS)]
    return product(rings, [(math.cos(turn + 0.8), math.sin(turn + 0.8)) for turn in turns])


def _around(x: float, y: float, half_width: float, half_height: float | None = None) -> Bbox:
    """Return the box around a point; a square if only one length is given."""
    half_height = half_width if half_height is None else half_height
    return Bbox.from_extents(x - half_width, y - half_height, x + half_width, y + half_height)


def _plain(axes: Axes) -> None:
    """Remove the decoration of the axes that a plot does not need."""
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=_SMALL, color=LINES, labelcolor=MUTED)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINES)
    axes.xaxis.label.set(color=MUTED, fontsize=_SMALL)
    axes.yaxis.label.set(color=MUTED, fontsize=_SMALL)
