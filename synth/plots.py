"""Plots of the report and of `docs/`.

Labels cannot overlap. Circuits are numbered, and a table contains their names; each number is
placed at a free position. Each bar has its labels above it.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from synth.operators import Circuit
from synth.svg import INK, KEPT, LINES, MUTED, OURS, SHEET, THEIRS

MARKERS = {"plain": "o", "area": "s", "speed": "^"}
"""Markers by recipe; circuits of other projects are mapped by ``plain``."""

FONT, _SIZE = 10, 11
_DIRECTIONS = 16


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row of a bar plot.

    Parameters
    ----------
    name, words : str
        Labels above the bar, to the left and to the right.
    value : float
        Length of the bar.
    color : str
        Colour of the bar.
    opacity : float
        1 for full colour.
    kept : bool
        Whether the figure is from the repository; its bar is pale.
    """

    name: str
    words: str
    value: float
    color: str = OURS
    opacity: float = 1.0
    kept: bool = False


WIDTH = 4.9
"""Inches: at this width text is legible on a screen of 390 pixels."""

_PALE = 0.55
_LINE, _BAR = 0.18, 0.34
"""Inches: height of a line of text, and of a bar with the space around it."""

_LETTERS = 46
"""Letters of both labels on one line; a longer name continues on the next one."""


def bars_plot(bars: Sequence[Bar], *, label: str, limits: tuple[float, float]) -> Figure:
    """Return a plot with one row per bar, on an axis between the limits."""
    low, high = limits
    names = [bar.name for bar in bars]
    figure, axes, rows = stacked_rows(names, [bar.words for bar in bars])
    for bar, row in zip(bars, rows, strict=True):
        length = min(bar.value, high) - low
        opacity = _PALE * bar.opacity if bar.kept else bar.opacity
        axes.barh(row, length, 0.15, left=low, color=bar.color, alpha=opacity, linewidth=0)
    axes.set(xlim=limits, xlabel=label)
    # Short labels: "0.0" at the left end would extend beyond the picture.
    axes.xaxis.set_major_formatter("{x:g}")
    plain(axes)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    return figure


def stacked_rows(
    names: Sequence[str], words: Sequence[str], *, above: float = 0.05
) -> tuple[Figure, Axes, list[float]]:
    """Return a figure of rows with labels above them, its axes, and each row's centre.

    Parameters
    ----------
    names, words : Sequence[str]
        Labels of each row to the left and to the right.
    above : float
        Inches that are free above the first row.
    """
    wrapped = [
        textwrap.wrap(name, max(_LETTERS - len(other), 12)) or [""]
        for name, other in zip(names, words, strict=True)
    ]
    tops, depth = [], 0.0
    for lines in wrapped:
        tops.append(depth)
        depth += _LINE * len(lines) + _BAR
    below = 0.5
    height = above + depth + below
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0.02, below / height, 0.95, depth / height))
    axes.set_ylim(depth, 0)
    axes.set_yticks([])
    rows = [top + _LINE * len(lines) + 0.11 for top, lines in zip(tops, wrapped, strict=True)]
    for top, lines, other in zip(tops, wrapped, words, strict=True):
        # One text per line: the distance between the lines of one text depends on its letters.
        texts = [(0, number, line, "left", INK) for number, line in enumerate(lines)]
        for x, number, text, side, color in [*texts, (1, 0, other, "right", MUTED)]:
            axes.text(
                x, top + _LINE * (number + 0.7), text, transform=axes.get_yaxis_transform(),
                fontsize=FONT, color=color, ha=side, va="baseline",
            )  # fmt: skip
    return figure, axes, rows


def put_above(figure: Figure, keys: Sequence[Artist], *, font: int) -> None:
    """Place a legend at the upper edge of a figure."""
    figure.legend(
        handles=keys, loc="upper left", ncols=1, frameon=False, fontsize=font, labelcolor=MUTED,
        borderaxespad=0.1, labelspacing=0.2, handlelength=1.2, handletextpad=0.5,
    )  # fmt: skip


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
        plain(axes)
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
    axes.legend(frameon=False, fontsize=FONT, labelcolor=MUTED)
    plain(axes)
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
    axes.set_xlabel("area, µm²", fontsize=FONT)
    axes.set_ylabel("delay, ps", fontsize=FONT)
    plain(axes)
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


def plain(axes: Axes) -> None:
    """Remove the decoration of the axes that a plot does not need."""
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=FONT, color=LINES, labelcolor=MUTED)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINES)
    axes.xaxis.label.set(color=MUTED, fontsize=FONT)
    axes.yaxis.label.set(color=MUTED, fontsize=FONT)
