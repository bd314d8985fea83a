"""Treemaps: rectangles whose areas are in proportion to the figures, and whose sides are similar.

The layout is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000).
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from synth.plots import FONT
from synth.svg import INK, SHEET

Place = tuple[float, float, float, float]
"""Left, bottom, width and height."""

SIZE = 4.9, 3.0
"""Inches."""

_LIGHTEST, _DARKEST = 0.16, 0.42


def squarify(figures: Sequence[float], place: Place) -> Iterator[Place]:
    """Yield a rectangle inside `place` for each figure; the figures must decrease.

    Raises
    ------
    ValueError
        If a figure is not positive, or larger than the one before it.
    """
    if any(figure <= 0 for figure in figures) or list(figures) != sorted(figures, reverse=True):
        raise ValueError("the figures of a treemap must be positive and decrease")
    left, bottom, width, height = place
    unit = width * height / sum(figures) if figures else 0.0
    areas = [figure * unit for figure in figures]
    while areas:
        side = min(width, height)
        count = 1
        # A strip along the shorter side takes figures as long as its worst ratio of sides falls.
        while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(
            areas[:count], side
        ):
            count += 1
        strip, areas = areas[:count], areas[count:]
        depth, along = sum(strip) / side, 0.0
        for area in strip:
            length = area / depth
            if width >= height:
                yield left, bottom + along, depth, length
            else:
                yield left + along, bottom, length, depth
            along += length
        if width >= height:
            left, width = left + depth, width - depth
        else:
            bottom, height = bottom + depth, height - depth


def _worst(areas: Sequence[float], side: float) -> float:
    """Return the largest ratio of sides in a strip along a side."""
    depth = sum(areas) / side
    return max(max(depth * depth / area, area / (depth * depth)) for area in areas)


def treemap(figures: Sequence[tuple[str, float]], color: str) -> Figure:
    """Return a treemap of named figures, which must decrease.

    A rectangle has its number from 1, with the name and the share where the space is sufficient.
    """
    figure = Figure(figsize=SIZE)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, SIZE[0]), ylim=(0, SIZE[1]))
    axes.set_axis_off()
    whole = sum(value for _, value in figures)
    places = list(squarify([value for _, value in figures], (0, 0, *SIZE)))
    step = (_DARKEST - _LIGHTEST) / max(len(figures) - 1, 1)
    for number, ((name, value), place) in enumerate(zip(figures, places, strict=True), 1):
        left, bottom, width, height = place
        opacity = _DARKEST - step * (number - 1)
        axes.add_patch(
            Rectangle((left, bottom), width, height, facecolor=color, alpha=opacity, linewidth=0)
        )
        axes.add_patch(
            Rectangle((left, bottom), width, height, fill=False, edgecolor=SHEET, linewidth=2)
        )
        for words in (f"{number}  {name}\n{value / whole:.1%}", str(number)):
            text = axes.text(
                left + 0.07, bottom + height - 0.07, words,
                fontsize=FONT, color=INK, ha="left", va="top",
            )  # fmt: skip
            extent = text.get_window_extent()
            if extent.width < (width - 0.1) * figure.dpi and (
                extent.height < (height - 0.1) * figure.dpi
            ):
                break
            text.remove()
    return figure
