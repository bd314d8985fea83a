"""Block diagrams: boxes, and arrows between them, from a small description.

Lengths are in grid units from the lower left corner; a unit is `UNIT` inches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from synth.svg import FILLS, INK, MUTED

UNIT = 0.72
"""Inches."""

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Box:
    """One box.

    Parameters
    ----------
    name : str
        Identifier for arrows.
    text, note : str
        Label, and a note below it in a smaller font.
    at, size : Sequence[float]
        Lower left corner; width and height.
    kind : str
        Key of `synth.svg.FILLS`, which selects the colour.
    units : Sequence[str]
        Patterns of the modules in the paper's folder of `hdl` that the box shows, such as
        ``array.systolic_array`` or ``array.*``; none if the box is outside the accelerator.
    """

    name: str
    text: str
    at: Sequence[float]
    size: Sequence[float]
    kind: str
    units: Sequence[str] = ()
    note: str = ""

    @property
    def spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The intervals that the box covers in x and in y."""
        (x, y), (width, height) = self.at, self.size
        return (x, x + width), (y, y + height)


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """One arrow.

    Parameters
    ----------
    between : Sequence[str]
        Source box and target box.
    via : Sequence[Sequence[float]]
        Corners between them; without corners, the boxes must face each other.
    both : bool
        Whether the arrow has heads at both ends.
    text, text_at
        Label, and the position of its centre.
    """

    between: Sequence[str]
    via: Sequence[Sequence[float]] = ()
    both: bool = False
    text: str = ""
    text_at: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """The boxes and arrows of a paper's `figure`, and the `size` of the drawing."""

    figure: str
    size: Sequence[float]
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]

    @classmethod
    def of(cls, table: dict[str, Any]) -> "Diagram":
        """Create a diagram from a table of a TOML file."""
        return cls(
            figure=table["figure"],
            size=table["size"],
            boxes=[Box(**box) for box in table["box"]],
            arrows=[Arrow(**arrow) for arrow in table["arrow"]],
        )

    def routes(self) -> Iterator[tuple[Arrow, list[Point]]]:
        """Yield each arrow and its corners, with both ends.

        Raises
        ------
        ValueError
            If a segment is neither horizontal nor vertical.
        """
        boxes = {box.name: box for box in self.boxes}
        for arrow in self.arrows:
            start, end = (boxes[name] for name in arrow.between)
            corners = [(x, y) for x, y in arrow.via] or [_between(start, end)]
            route = [_edge(start, corners[0]), *corners, _edge(end, corners[-1])]
            route = route if arrow.via else [route[0], route[-1]]
            if any(x != next_x and y != next_y for (x, y), (next_x, next_y) in pairwise(route)):
                names = " to ".join(arrow.between)
                raise ValueError(f"the arrow from {names} must turn at right angles: {route}")
            yield arrow, route


def draw_diagram(diagram: Diagram) -> Figure:
    """Return the figure of a diagram."""
    width, height = diagram.size
    figure = Figure(figsize=(width * UNIT, height * UNIT))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    for box in diagram.boxes:
        _draw_box(axes, box)
    for arrow, route in diagram.routes():
        style = "<|-|>" if arrow.both else "-|>"
        axes.add_patch(
            FancyArrowPatch(
                path=Path(route), arrowstyle=style, mutation_scale=11, color=INK, linewidth=1.1
            )
        )
        if arrow.text:
            x, y = arrow.text_at
            axes.text(x, y, arrow.text, fontsize=9, color=MUTED, ha="center", va="center")
    return figure


def _draw_box(axes: Axes, box: Box) -> None:
    """Add a box with its label and note to the axes."""
    (left, right), (bottom, top) = box.spans
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom),
            right - left,
            top - bottom,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=FILLS[box.kind],
            edgecolor=MUTED if box.kind == "outside" else INK,
            linestyle="--" if box.kind == "outside" else "-",
            linewidth=1.1,
        )
    )
    # Centre label and note together: each line of the note takes a quarter of a unit.
    x, y = (left + right) / 2, (bottom + top) / 2
    lines = len(box.note.splitlines())
    lift = 0.15 * lines
    axes.text(
        x, y + lift, box.text, fontsize=11, weight="bold", color=INK, ha="center", va="center"
    )
    if box.note:
        below = y + lift - 0.18 - 0.17 * len(box.text.splitlines())
        axes.text(x, below, box.note, fontsize=9, color=MUTED, ha="center", va="top")


def _between(start: Box, end: Box) -> Point:
    """Return a point on the straight line from one box to the other."""
    middles = []
    for (low, high), (other_low, other_high) in zip(start.spans, end.spans, strict=True):
        middles.append((max(low, other_low) + min(high, other_high)) / 2)
    return middles[0], middles[1]


def _edge(box: Box, corner: Point) -> Point:
    """Return the point where a horizontal or vertical line to a corner crosses a box's edge."""
    x, y = (min(max(at, low), high) for at, (low, high) in zip(corner, box.spans, strict=True))
    return x, y
