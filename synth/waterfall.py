"""Waterfalls of the five systems: the cycles of a token above the design's own bound, by cause.

Bound and cycles are those of `docs/comparison.json`. `synth/reference/papers/<paper>.toml` has the
causes that were counted; what they leave is one block, ``not divided``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hdl.paths import ROOT
from synth.plots import FONT, plain, put_above, stacked_rows
from synth.svg import LINES, MUTED, SYSTEMS, svg

PLOT = ROOT / "docs" / "waterfall.svg"
TITLE = "SmolLM2-135M: cycles per token above each design's own bound, by cause, lower is better"
NOT_DIVIDED = "not divided"
SHADES = {"counted": 1.0, NOT_DIVIDED: 0.35}
"""Opacity of a system's colour by what is known of a block."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Cycles of a token with one cause.

    Parameters
    ----------
    name : str
        The cause.
    cycles : Sequence[int]
        Addends of one occurrence, each of which is on the page.
    times : int
        Occurrences in a token.
    page : str
        Page below `docs/` that has the counts.
    """

    name: str
    cycles: Sequence[int]
    page: str
    times: int = 1

    @property
    def total(self) -> int:
        """Cycles of a token."""
        return sum(self.cycles) * self.times


def blocks(system: Mapping[str, Any], causes: Sequence[Cause]) -> dict[str, int]:
    """Return the cycles above the bound by cause; the last, ``not divided``, is a remainder.

    Raises
    ------
    ValueError
        If the causes have more cycles than the token has above its bound.
    """
    found = {cause.name: cause.total for cause in causes}
    rest = system["figures"]["cycles"] - system["figures"]["bound"] - sum(found.values())
    if rest < 0:
        raise ValueError(f"the causes of {system['name']} have {-rest} cycles too many")
    return {**found, NOT_DIVIDED: rest} if rest else found


def waterfall_plot(data: dict[str, Any], causes: Mapping[str, Sequence[Cause]]) -> Figure:
    """Return the blocks of each system from its bound to its cycles, and their sum.

    Parameters
    ----------
    data : dict[str, Any]
        The figures of the comparison.
    causes : Mapping[str, Sequence[Cause]]
        The causes by system.
    """
    names, words, bars = [], [], []
    for key, system in data["systems"].items():
        if "bound" not in system["figures"]:
            continue
        cycles, bound = system["figures"]["cycles"], system["figures"]["bound"]
        left = 0
        for name, own in blocks(system, causes.get(key, ())).items():
            names.append(f"{system['name']}: {name}")
            words.append(f"+{own:,} cycles")
            shade = SHADES.get(name, SHADES["counted"])
            bars.append((left / bound, own / bound, SYSTEMS[key], shade))
            left += own
        names.append(f"{system['name']}: {bound:,} to {cycles:,}")
        words.append(f"+{left / bound:.1%}")
        bars.append((0, left / bound, MUTED, 1.0))
    figure, axes, rows = stacked_rows(names, words, above=0.75)
    for (start, length, color, shade), row in zip(bars, rows, strict=True):
        axes.barh(row, 100 * length, 0.15, left=100 * start, color=color, alpha=shade, linewidth=0)
    axes.set(xlim=(0, None), xlabel="cycles above the bound, % of it (lower is better)")
    plain(axes)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    keys = [
        Patch(facecolor=SYSTEMS["veda"], alpha=SHADES["counted"], label="a cause that was counted"),
        Patch(facecolor=SYSTEMS["veda"], alpha=SHADES[NOT_DIVIDED], label=NOT_DIVIDED),
        Patch(facecolor=MUTED, label="from the bound to the cycles of a token"),
    ]
    put_above(figure, keys, font=FONT)
    return figure


def drawing(data: dict[str, Any], causes: Mapping[str, Sequence[Cause]]) -> str:
    """Return the plot as SVG."""
    return svg(waterfall_plot(data, causes), TITLE)
