"""Occupancy of the five systems: in how many cycles of a step the limiting unit works, and on what.

`synth/reference/papers/<paper>.toml` holds the counts, each of which is on a page of `docs/`. The
limiting unit is the array or the memory port whose lines, beats or columns the ideal cycles count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from synth.plots import FONT, Bar, plain, put_above, stacked_rows
from synth.svg import LINES, MUTED, SYSTEMS

SHADES = {"linear": 1.0, "attention": 0.55, "other": 0.25}
"""Opacity of a system's colour by the kind of work."""

LEGEND = {
    "linear": "linear layers",
    "attention": "attention",
    "other": "other work: scales, norms, refresh, drains",
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """One kind of work of a step.

    Parameters
    ----------
    name : str
        Description.
    kind : str
        Key of `SHADES`.
    cycles, times : int
        Cycles of one execution, and how often the step contains it.
    """

    name: str
    kind: str
    cycles: int
    times: int = 1

    @property
    def total(self) -> int:
        """Cycles of all executions."""
        return self.cycles * self.times


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The cycles of one step of a system.

    Parameters
    ----------
    step, unit : str
        What was simulated, and the limiting unit.
    total : int
        All cycles of the step.
    page, command : str
        Page below `docs/` that has all counts, and the command that measures them.
    work : Sequence[Work]
        The cycles in which the unit works, in the order of the step.

    Raises
    ------
    ValueError
        If the work takes more cycles than the step.
    """

    step: str
    unit: str
    total: int
    page: str
    command: str
    work: Sequence[Work]

    def __post_init__(self) -> None:
        if self.idle < 0:
            raise ValueError(f"{self.step}: the work takes {-self.idle} cycles more than the step")

    @property
    def idle(self) -> int:
        """Cycles without any listed work."""
        return self.total - sum(work.total for work in self.work)

    @property
    def share(self) -> float:
        """Share of the cycles with linear layers or attention."""
        return sum(work.total for work in self.work if work.kind != "other") / self.total


def occupancy_bars(name: str, occupancy: Occupancy) -> list[Bar]:
    """Return each kind of work of a system in percent of the step, and the idle cycles."""
    bars = [
        Bar(
            name=work.name,
            words=f"{work.total:,} cycles",
            value=100 * work.total / occupancy.total,
            color=SYSTEMS[name],
            opacity=SHADES[work.kind],
        )
        for work in occupancy.work
    ]
    idle = f"{occupancy.idle:,} cycles"
    value = 100 * occupancy.idle / occupancy.total
    return [*bars, Bar(name="idle", words=idle, value=value, color=MUTED, opacity=0.5)]


def occupancy_plot(systems: Sequence[tuple[str, str, Occupancy]]) -> Figure:
    """Return one row per system, divided by the kind of work.

    Parameters
    ----------
    systems : Sequence[tuple[str, str, Occupancy]]
        Key of `synth.svg.SYSTEMS`, title and cycles of each system.
    """
    names = [title for _, title, _ in systems]
    words = [f"{occupancy.share:.1%} of {occupancy.total:,} cycles" for *_, occupancy in systems]
    figure, axes, rows = stacked_rows(names, words, above=0.75)
    for (key, _, occupancy), row in zip(systems, rows, strict=True):
        left = 0.0
        for kind, opacity in SHADES.items():
            cycles = sum(work.total for work in occupancy.work if work.kind == kind)
            width = 100 * cycles / occupancy.total
            axes.barh(row, width, 0.2, left=left, color=SYSTEMS[key], alpha=opacity, linewidth=0)
            left += width
        axes.barh(row, 100 - left, 0.2, left=left, color=LINES, linewidth=0)
    axes.set(xlim=(0, 100), xlabel="% of the cycles of a step")
    plain(axes)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    keys = [
        Patch(facecolor=MUTED, alpha=opacity, label=LEGEND[kind])
        for kind, opacity in SHADES.items()
    ]
    keys.append(Patch(facecolor=LINES, label="idle"))
    put_above(figure, keys, font=FONT)
    return figure
