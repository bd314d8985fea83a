"""What is wrong with a drawing, read from the drawing itself."""

from collections.abc import Iterator
from itertools import combinations
from unittest.mock import patch

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def words_of(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every visible text of a figure, and its box in pixels."""
    figure.draw_without_rendering()
    drawn: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def record(text: Text, renderer) -> None:
        draw(text, renderer)
        # An annotation's own extent has its arrow in it.
        if text.get_visible() and text.get_text():
            drawn.append((text.get_text(), Text.get_window_extent(text, renderer)))

    with patch.object(Text, "draw", record):
        figure.draw_without_rendering()
    return drawn


def faults_of(figure: Figure) -> Iterator[str]:
    """Return the texts that exceed the figure, and those that overlap."""
    words = words_of(figure)
    for text, box in words:
        if not all(figure.bbox.contains(x, y) for x, y in box.corners()):
            yield f"{text!r} is outside the figure"
    for (text, box), (other, other_box) in combinations(words, 2):
        if box.overlaps(other_box):
            yield f"{text!r} lies on {other!r}"
