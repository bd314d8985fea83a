"""Reproducible SVG text of figures, with the colours of the page.

Each colour is a CSS variable with the light theme's value as fallback: the same figure is dark on a
page with a dark theme, and light as a separate file. Text remains text in the reader's font. The
layout uses DejaVu Sans, which is wider than the fonts that browsers select.
"""

import io
import re

import matplotlib
from matplotlib.figure import Figure

INK, MUTED, LINES, SHEET = "#1f2933", "#5f6b77", "#d5dae0", "#fefefe"
OURS, THEIRS, KEPT = "#b8402a", "#6b7f93", "#d69a8c"

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
    **FILLS,
}
"""Colours by the names of their variables, ``--ink`` and so on."""


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
