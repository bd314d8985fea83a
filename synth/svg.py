"""Reproducible SVG text of figures, with the colours of the page.

Each colour is a CSS variable with the light theme's value as fallback: the same figure is dark on a
page with a dark theme, and light as a separate file. Text remains text in the reader's font. The
layout uses DejaVu Sans, which is wider than the fonts that browsers select.
"""

import io
import math
import re

import matplotlib
from matplotlib.figure import Figure

INK, MUTED, LINES, SHEET = "#1f2933", "#5f6b77", "#d5dae0", "#fefefe"
OURS, THEIRS, KEPT = "#b8402a", "#6b7f93", "#d69a8c"

SYSTEMS = {
    "kelle": "#0072b2",
    "veda": "#d55e00",
    "lad": "#00875f",
    "p3llm": "#a6559d",
    "meadow": "#8f6f00",
}
"""Colour of each system by its paper's folder: the same one in every plot and table."""

SHAPES = {"kelle": "o", "veda": "s", "lad": "^", "p3llm": "D", "meadow": "v"}
"""Marker of each system, for readers who do not distinguish the colours."""

FILLS = {"compute": "#fbe3dc", "memory": "#dfeaf6", "control": "#e6efdf", "outside": "#f4f5f6"}
"""Fill colours of a diagram's boxes by kind."""

VARIABLES = {
    "ink": INK,
    "muted": MUTED,
    "lines": LINES,
    "sheet": SHEET,
    "ours": OURS,
    "theirs": THEIRS,
    "kept": KEPT,
    **SYSTEMS,
    **FILLS,
}
"""Colours by the names of their variables, ``--ink`` and so on."""

DARK = {
    "ink": "#e4e8ec",
    "muted": "#9aa6b2",
    "lines": "#353c44",
    "sheet": "#15191d",
    "ours": "#e8806a",
    "theirs": "#8fa3b8",
    "kept": "#8a5347",
    "kelle": "#56b4e9",
    "veda": "#ef8a3c",
    "lad": "#3fc79a",
    "p3llm": "#d694ce",
    "meadow": "#d9b53c",
    "compute": "#43241d",
    "memory": "#1c3047",
    "control": "#24361c",
    "outside": "#1f252b",
}
"""The same variables on a page with a dark theme."""


def svg(figure: Figure, title: str) -> str:
    """Render a figure, without its date and with fixed identifiers; `title` is read aloud."""
    text = io.StringIO()
    figure.set_facecolor(SHEET)
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"\s*<metadata>.*?</metadata>", "", drawing, flags=re.S)
    drawing = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", drawing)
    # Remove unused identifiers, which would be duplicates in the next figure of the page.
    used = set(re.findall(r"#(\w+)", drawing))
    drawing = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", drawing)
    for name, color in VARIABLES.items():
        drawing = drawing.replace(color, f"var(--{name}, {color})")
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


SMALLEST, LARGEST = 9.0, 16.0
"""Pixels: the smallest font size that is legible on a screen, and that of the report's text."""


def width_at(drawing: str, size: float) -> int:
    """Return the width of a drawing whose smallest text has a size; both in pixels.

    Returns
    -------
    int
        0 without text.
    """
    box = re.search(r'viewBox="0 0 ([\d.]+) ', drawing)
    fonts = [float(size) for size in re.findall(r"font(?:-size)?: (?:\d+ )?([\d.]+)px", drawing)]
    return math.ceil(float(box[1]) * size / min(fonts)) if box and fonts else 0
