"""Figures as SVG text that is the same in every run and follows the page's colours.

A colour of the figures is a variable of style sheets with the light page's value as what holds
without one: on a page with a dark half the same drawing is dark, and a file by itself is light.
Words stay words, in the reader's font; a figure is laid out in DejaVu Sans, which is wider than
what browsers choose.
"""

import io
import re

import matplotlib
from matplotlib.figure import Figure

INK, MUTED, LINES, SHEET = "#1f2933", "#5f6b77", "#d5dae0", "#fefefe"
OURS, THEIRS, KEPT = "#b8402a", "#6b7f93", "#d69a8c"

FILLS = {"compute": "#fbe3dc", "memory": "#dfeaf6", "control": "#e6efdf", "outside": "#f4f5f6"}
"""What boxes of a diagram are filled with, by their kind."""

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
    # Names that nothing refers to would be those of the next figure on the page too.
    used = set(re.findall(r"#(\w+)", drawing))
    drawing = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", drawing)
    for name, color in VARIABLES.items():
        drawing = drawing.replace(color, f"var(--{name}, {color})")
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
