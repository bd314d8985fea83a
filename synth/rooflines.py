"""Pictures of the normalised rows: speed by bandwidth and area, energy and bytes by perplexity.

Every value is that of `synth.normalised`; nothing is measured for the pictures.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from hdl.paths import ROOT
from synth.comparison import off_chip_bytes
from synth.normalised import accelerators, area_mm2, energy_mj, paper_gb_s, speed_or_banks
from synth.plots import FONT, WIDTH, plain
from synth.svg import LINES, MUTED, SHAPES, SYSTEMS, svg

PLOT = ROOT / "docs" / "normalised.svg"
TITLE = (
    "SmolLM2-135M: tokens/s by bandwidth and by area, higher is better; "
    "energy and bytes per token by perplexity, lower is better"
)
BANDWIDTHS = tuple(float(gb_s) for gb_s in np.geomspace(1, 1000, 61))
"""Bandwidths of a roofline in GB/s."""
COMMON_GB_S = 64.0
"""Bandwidth of the speeds by area: Kelle's memory, and the most that P3-LLM's banks deliver."""


def normalised_plot(data: dict[str, Any]) -> Figure:
    """Return the four panels.

    Parameters
    ----------
    data : dict[str, Any]
        The figures of the comparison.

    Returns
    -------
    Figure
        A roofline per system with a marker at the paper's memory; tokens/s by area; energy by
        perplexity, of the systems whose energy is known; off-chip bytes by perplexity.
    """
    figure = Figure(figsize=(WIDTH, 13.6), layout="constrained")
    by_bandwidth, by_area, by_quality, by_bytes = figure.subplots(4, 1)
    keys = []
    # Lines and markers that lie on each other remain visible: later lines are thinner, and markers
    # are hollow.
    widths = np.linspace(3.6, 1.2, len(SYSTEMS))
    for (key, system), width in zip(accelerators(data).items(), widths, strict=True):
        style = {"color": SYSTEMS[key], "marker": SHAPES[key], "markersize": 8}
        style |= {"markerfacecolor": "none", "markeredgewidth": 1.8, "clip_on": False}
        keys.append(Line2D([], [], label=system["name"], linewidth=width, **style))
        line = [speed_or_banks(system, gb_s) for gb_s in BANDWIDTHS]
        own = paper_gb_s(system)
        # The bandwidth of P3-LLM's banks is not a choice: its line has no marker.
        shape = "-" if own else "--"
        by_bandwidth.plot(BANDWIDTHS, line, shape, color=SYSTEMS[key], linewidth=width, label=key)
        if own:
            by_bandwidth.plot([own], [speed_or_banks(system, own)], linestyle="", **style)
        common = speed_or_banks(system, COMMON_GB_S)
        by_area.plot([area_mm2(system)], [common], linestyle="", label=key, **style)
        perplexity, energy = system["figures"]["perplexity"], energy_mj(system)
        if isinstance(energy, int | float):
            by_quality.plot([perplexity], [energy], linestyle="", label=key, **style)
        moved = off_chip_bytes(system)
        if isinstance(moved, int | float):
            by_bytes.plot([perplexity], [moved / 1e6], linestyle="", label=key, **style)
    by_bandwidth.set(xscale="log", yscale="log", xlabel="GB/s; markers: the papers' memories")
    by_bandwidth.set_ylabel("tokens/s, at most (higher is better)")
    by_area.set(xscale="log", xlim=(1, 30), ylim=(0, None))
    by_area.set_xlabel("mm2 of logic and memories (lower is better)")
    by_area.set_ylabel(f"tokens/s at {COMMON_GB_S:g} GB/s (higher is better)")
    by_quality.set(xlim=(30, None), ylim=(0, None), xlabel="perplexity (lower is better)")
    by_quality.set_ylabel("mJ/token (lower is better)")
    by_bytes.set(xlim=(30, None), ylim=(0, None), xlabel="perplexity (lower is better)")
    by_bytes.set_ylabel("off-chip MB/token (lower is better)")
    for axis in (by_bandwidth.xaxis, by_bandwidth.yaxis, by_area.xaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for axes in figure.axes:
        plain(axes)
        axes.grid(color=LINES, linewidth=0.6)
    figure.legend(
        handles=keys, loc="outside upper left", ncols=3, frameon=False, fontsize=FONT,
        labelcolor=MUTED,
    )  # fmt: skip
    return figure


def drawing(data: dict[str, Any]) -> str:
    """Return the plot as SVG."""
    return svg(normalised_plot(data), TITLE)
