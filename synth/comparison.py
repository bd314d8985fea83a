"""The systems side by side on one model: the table and the plot of `docs/comparison.md`.

``make report DOCS=1`` writes both anew from `docs/comparison.json`, in which each figure has the
command that gave it; a test holds them to it.
"""

import json
from typing import Any

from matplotlib.figure import Figure

from hdl.paths import ROOT
from synth.svg import KEPT, MUTED, OURS, THEIRS, svg

FIGURES = ROOT / "docs" / "comparison.json"
PAGE = ROOT / "docs" / "comparison.md"
PLOT = ROOT / "docs" / "comparison.svg"
TITLE = "perplexity, cycles and octets a token of the systems that speak"

ROWS = (
    ("perplexity", "perplexity", "{:.2f}"),
    ("with 128 of 256 tokens cached", "perplexity_128", "{:.2f}"),
    ("cycles a token", "cycles", "{:,.0f}"),
    ("of them the bound's", "bound", "{:,.0f}"),
    ("octets a token off the chip", "octets", "{:,.0f}"),
    ("the same with weights unpacked", "octets_unpacked", "{:,.0f}"),
    ("multipliers", "multipliers", "{:,}"),
    ("logic, NanGate 45 nm, um2", "area_um2", "{:,.0f}"),
    ("its clock, MHz", "clock_mhz", "{:,.0f}"),
    ("energy of it a token, mJ", "energy_mj", "{:.2f}"),
    ("the same for speed, um2", "fastest_um2", "{:,.0f}"),
    ("its clock, MHz", "fastest_mhz", "{:,.0f}"),
    ("bits of memories, in no area", "memory_bits", "{:,.0f}"),
)
"""Of the table: what it is called, its key, and how it is shown."""

PANELS = (
    ("perplexity", "perplexity", 1.0),
    ("million cycles a token", "cycles", 1e6),
    ("million octets a token", "octets", 1e6),
)
"""Of the plot: what is on the axis, its key, and its unit."""


def kept() -> dict[str, Any]:
    """Return what was measured."""
    return json.loads(FIGURES.read_text())


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables by their names, as Markdown."""
    systems = data["systems"]
    lines = [["", *(system["name"] for system in systems.values())]]
    lines.append(["---"] * len(lines[0]))
    for title, key, shown in ROWS:
        values = (system["figures"].get(key, system["absent"]) for system in systems.values())
        # Where there is no number, a word says why.
        lines.append([title, *(v if isinstance(v, str) else shown.format(v) for v in values)])
    commands = [
        f"| {system['name']} | {what} | `{command}` |"
        for system in systems.values()
        for what, command in system["commands"].items()
    ]
    return {
        "comparison": "\n".join("| " + " | ".join(cells) + " |" for cells in lines),
        "commands": "\n".join(["| of | what | command |", "|---|---|---|", *commands]),
    }


def comparison_plot(data: dict[str, Any]) -> Figure:
    """Return a panel for each figure, a bar for each system that has it."""
    figure = Figure(figsize=(7.4, 2.3), layout="constrained")
    colors = {"float32": MUTED, "veda": THEIRS, "meadow": OURS}
    for axes, (title, key, unit) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        own = {
            name: system["figures"][key] / unit
            for name, system in data["systems"].items()
            if key in system["figures"]
        }
        places = range(len(own))
        axes.barh(places, list(own.values()), color=[colors.get(name, KEPT) for name in own])
        names = [data["systems"][name]["name"] for name in own]
        axes.set_yticks(places, names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(title, fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        for place, value in zip(places, own.values(), strict=True):
            axes.text(value, place, f" {value:.3g}", va="center", fontsize=7)
        axes.set_xlim(0, 1.25 * max(own.values(), default=1))
    return figure


def drawing(data: dict[str, Any]) -> str:
    """Return the plot as SVG."""
    return svg(comparison_plot(data), TITLE)
