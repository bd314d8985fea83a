"""Diagrams of characters as SVG: a page's block of lines, arrows and words, as a picture.

The pages have their diagrams as text, which an editor shows. On the site, a line of a hundred
characters is wider than the page; a picture becomes narrower with the page.
"""

import re
from collections.abc import Iterator
from html import escape

LEFT, RIGHT, UP, DOWN = (-1, 0), (1, 0), (0, -1), (0, 1)
LINES = {
    "─": (LEFT, RIGHT),
    "│": (UP, DOWN),
    "┌": (RIGHT, DOWN),
    "┐": (LEFT, DOWN),
    "└": (RIGHT, UP),
    "┘": (LEFT, UP),
    "├": (UP, DOWN, RIGHT),
    "┤": (UP, DOWN, LEFT),
    "┬": (LEFT, RIGHT, DOWN),
    "┴": (LEFT, RIGHT, UP),
    "┼": (LEFT, RIGHT, UP, DOWN),
}
"""Edges of a cell to which a line leads from its centre."""
ARROWS = {"►": RIGHT, "◄": LEFT, "▲": UP, "▼": DOWN}
SHADE = "▓"
"""A cell of a bar in a timing diagram."""

WIDTH, HEIGHT, FONT = 6, 13, 10
"""Pixels: a cell, and the size of its letter; a monospaced letter is 0.6 times as wide."""
SMALLEST, LARGEST = 9.0, 14.0
"""Pixels: limits of the font size on the page."""
HEAD = 3
"""Pixels: half of an arrow's base."""


def is_diagram(text: str) -> bool:
    """Return whether a block of text has lines or arrows."""
    return any(letter in text for letter in (*LINES, *ARROWS))


def drawing_of(text: str) -> str:
    """Return the SVG text of a diagram, in the colour of the text around it."""
    rows = text.rstrip("\n").split("\n")
    columns = max(map(len, rows))
    lines, heads, shades, words = [], [], [], []
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            centre = WIDTH * (x + 0.5), HEIGHT * (y + 0.5)
            if letter in ARROWS:
                line, head = _arrow(centre, ARROWS[letter])
                lines.append(line)
                heads.append(head)
            elif letter == SHADE:
                shades.append(f"M{WIDTH * x:g} {HEIGHT * y + 1:g}h{WIDTH}v{HEIGHT - 2}h-{WIDTH}z")
            lines += [_to_edge(centre, edge) for edge in LINES.get(letter, ())]
        for x, word in _words(row):
            # A length for each text, since the reader's font may have another width.
            words.append(
                f'<text x="{WIDTH * x}" y="{HEIGHT * (y + 0.5) + 0.35 * FONT:g}" '
                f'textLength="{WIDTH * len(word)}" lengthAdjust="spacingAndGlyphs">'
                f"{escape(word)}</text>"
            )
    width = WIDTH * columns
    least, most = (round(width * size / FONT) for size in (SMALLEST, LARGEST))
    return (
        f'<svg role="img" aria-label="Diagram" viewBox="0 0 {width} {HEIGHT * len(rows)}" '
        f'style="display: block; width: 100%; min-width: {least}px; max-width: {most}px; '
        f'font: {FONT}px monospace" fill="currentColor">'
        f'<path d="{"".join(lines)}" fill="none" stroke="currentColor"/>'
        f'<path d="{"".join(heads)}"/><path d="{"".join(shades)}" opacity="0.6"/>'
        f"{''.join(words)}</svg>"
    )


def _to_edge(centre: tuple[float, float], edge: tuple[int, int]) -> str:
    """Return a line from the centre of a cell to an edge."""
    x, y = centre
    return f"M{x:g} {y:g}l{edge[0] * WIDTH / 2:g} {edge[1] * HEIGHT / 2:g}"


def _arrow(centre: tuple[float, float], to: tuple[int, int]) -> tuple[str, str]:
    """Return the line that enters a cell, and the head, whose tip is at the opposite edge."""
    (x, y), (right, down) = centre, to
    tip_x, tip_y = x + right * WIDTH / 2, y + down * HEIGHT / 2
    base_x, base_y = tip_x - right * WIDTH, tip_y - down * WIDTH
    head = (
        f"M{tip_x:g} {tip_y:g}L{base_x + down * HEAD:g} {base_y + right * HEAD:g}"
        f"L{base_x - down * HEAD:g} {base_y - right * HEAD:g}z"
    )
    start_x, start_y = x - right * WIDTH / 2, y - down * HEIGHT / 2
    return f"M{start_x:g} {start_y:g}L{base_x:g} {base_y:g}", head


def _words(row: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a row with their columns; two spaces separate texts."""
    shapes = "".join(map(re.escape, (*LINES, *ARROWS, SHADE)))
    for found in re.finditer(rf"[^\s{shapes}]+(?: [^\s{shapes}]+)*", row):
        yield found.start(), found[0]
