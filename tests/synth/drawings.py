"""What is wrong with a drawing, read from the drawing itself."""

from collections.abc import Iterator
from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def words_of(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every text that is seen, and the pixels that it takes."""
    figure.draw_without_rendering()
    seen = [
        artist
        for artist in figure.findobj(Text)
        if isinstance(artist, Text) and artist.get_visible() and artist.get_text()
    ]
    return [(text.get_text(), text.get_window_extent()) for text in seen]


def faults_of(figure: Figure) -> Iterator[str]:
    """Say which texts leave the figure and which lie on each other."""
    words = words_of(figure)
    for text, box in words:
        if not all(figure.bbox.contains(x, y) for x, y in box.corners()):
            yield f"{text!r} leaves the figure"
    for (text, box), (other, other_box) in combinations(words, 2):
        if box.overlaps(other_box):
            yield f"{text!r} lies on {other!r}"
