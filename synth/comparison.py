"""The comparison of the five systems on one model: table and plot of `docs/comparison.md`.

``make report DOCS=1`` writes both from `docs/comparison.json`, which holds each figure with the
command that measured it. `checked` defines which figures may be compared: traffic is off-chip or at
the DRAM banks, and a netlist has a clock only where the memory that it drives allows that clock.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.paths import ROOT
from synth.digests import MARK
from synth.figures import PRESET
from synth.plots import FONT, plain
from synth.svg import INK, LINES, MUTED, SYSTEMS, THEIRS, svg

FIGURES = ROOT / "docs" / "comparison.json"
LEGEND = f"\n\n{MARK} A figure of earlier Verilog decides this value."
PAGE = ROOT / "docs" / "comparison.md"
PLOT = ROOT / "docs" / "comparison.svg"
TITLE = "SmolLM2-135M: perplexity and off-chip bytes per token, lower is better"

OFF_CHIP, BANKS = "off-chip", "banks"
"""Where a system's traffic is counted: across the chip's memory ports, or at the arrays of the DRAM
banks, most of whose bytes never leave the memory."""
NOT_OFF_CHIP = "not measured"
"""What an off-chip row shows if only the traffic at the banks is known."""
ITS_BANKS = "its banks"
"""What a row of the paper's memory shows for a system that multiplies in its memory."""
NOT_AT_BANKS = "none"
NO_LEGAL_CLOCK = "none legal"

FIGURE_NAMES = {
    "perplexity",
    "perplexity_128",
    "perplexity_lost_bits",
    "cycles",
    "bound",
    "bytes_per_token",
    "bytes_unpacked",
    "channel_bytes",
    "multipliers",
    "area_um2",
    "clock_mhz",
    "energy_mj",
    "fastest_um2",
    "fastest_mhz",
    "memory_bits",
    "edram_bits",
    "multipliers_per_product",
    *("memory_cycles", "memory_waiting", "memory_utilization", "memory_bytes"),
}
MEMORY_NAMES = {
    "where",
    "kind",
    "port_bytes",
    "paper_bytes_per_cycle",
    "paper_clock_mhz",
    "paper_memory",
    "clock_mhz",
}

System = Mapping[str, Any]
Value = float | str | None
"""A figure; a word that replaces it; or None, for which the system's own word is shown."""


def kept() -> dict[str, Any]:
    """Return the measured figures.

    Raises
    ------
    UserError
        By `checked`.
    """
    data = checked(json.loads(FIGURES.read_text()))
    for top, system in data["systems"].items():
        if system.get("memory", {}).get("where") == BANKS:
            parameters = entry_named(top).parameters(PRESET)
            data["systems"][top] = at_bank_clock(system, parameters)
    return data


def at_bank_clock(system: System, parameters: Any) -> System:
    """Return a system whose netlist may run at one clock only: that of its banks' parameters.

    A system without compute units at DRAM banks is returned as it is.
    """
    memory = system.get("memory", {})
    if memory.get("where") != BANKS:
        return system
    return {**system, "memory": {**memory, "clock_mhz": parameters.channel.timing.clock_mhz}}


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data if every system specifies where its traffic is counted.

    Raises
    ------
    UserError
        If a name is unknown, or if traffic has no place or an unknown one.
    """
    for key, system in data["systems"].items():
        memory = system.get("memory", {})
        for kind, names, legal in (
            ("figures", system["figures"], FIGURE_NAMES),
            ("memory", memory, MEMORY_NAMES),
        ):
            if unknown := sorted(set(names) - legal):
                raise UserError(f"{key}: {kind} must not contain {unknown[0]!r}")
        if absent := sorted(set(system.get("old", ())) - set(system["figures"])):
            raise UserError(f"{key}: old must list figures of the system, not {absent[0]!r}")
        where = memory.get("where")
        if "bytes_per_token" in system["figures"] and where not in (OFF_CHIP, BANKS):
            raise UserError(f"{key}: memory.where must be {OFF_CHIP!r} or {BANKS!r}, not {where!r}")
    return data


class Watched(dict[str, Any]):
    """Figures that record which names were read."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        super().__init__(figures)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a figure, or the default, and record its name."""
        self.read.add(name)
        return super().get(name, default)


def cell(system: System, of: Callable[[System], Value], shown: str) -> str:
    """Return the text of a cell, with a mark if a figure of earlier Verilog decides it.

    Parameters
    ----------
    system : System
        The system; its list ``old`` names the figures of earlier Verilog.
    of : Callable[[System], Value]
        The row's value of a system.
    shown : str
        Format of a number.
    """
    watched = Watched(system["figures"])
    value = of({**system, "figures": watched})
    value = system["absent"] if value is None else value
    text = value if isinstance(value, str) else shown.format(value)
    numeric = not isinstance(value, str)
    return f"{text} {MARK}" if numeric and watched.read & set(system.get("old", ())) else text


def figure(system: System, name: str) -> Value:
    """Return a figure, or None."""
    return system["figures"].get(name)


def counted(system: System, where: str, value: Value) -> Value:
    """Return a figure of memory or traffic in the row of its place, and a word in the other one."""
    own = system.get("memory", {}).get("where")
    if own is None or own == where:
        return value
    return NOT_AT_BANKS if where == BANKS else ITS_BANKS


def off_chip_bytes(system: System) -> Value:
    """Return the bytes per token across the ports of the memory outside the accelerator.

    Of a system whose traffic is counted at the banks, those across the DRAM's channel.
    """
    if system.get("memory", {}).get("where") == BANKS:
        return system["figures"].get("channel_bytes", NOT_OFF_CHIP)
    return figure(system, "bytes_per_token")


def bank_bytes(system: System) -> Value:
    """Return the bytes per token at the arrays of the DRAM banks."""
    return counted(system, BANKS, figure(system, "bytes_per_token"))


def per_cycle(system: System, moved: Value) -> Value:
    """Return bytes per token over the measured cycles per token, or the word for the bytes."""
    cycles = figure(system, "cycles")
    if not isinstance(moved, int | float) or not isinstance(cycles, int | float):
        return moved
    return moved / cycles


def bound_at_paper(system: System) -> Value:
    """Return the cycles/token below which the paper's memory cannot move these bytes.

    The larger one of the design's own bound and of the bytes over the paper's bandwidth.
    """
    bandwidth = system.get("memory", {}).get("paper_bytes_per_cycle")
    if bandwidth is None:
        return None
    return max(system["figures"]["bound"], system["figures"]["bytes_per_token"] / bandwidth)


def clock(system: System, name: str) -> Value:
    """Return the clock in MHz at which a netlist may run.

    The counters of the banks' times belong to the clock of the parameters: a faster one violates
    minimum times, a slower one the refresh interval. A netlist that does not reach it has no clock.
    """
    reached = figure(system, name)
    only = system.get("memory", {}).get("clock_mhz")
    if only is None or not isinstance(reached, int | float):
        return reached
    return only if reached >= only else NO_LEGAL_CLOCK


def energy(system: System) -> Value:
    """Return the energy of the smallest logic that has a legal clock, if any has one."""
    clocks = [clock(system, name) for name in ("clock_mhz", "fastest_mhz")]
    return NO_LEGAL_CLOCK if set(clocks) == {NO_LEGAL_CLOCK} else figure(system, "energy_mj")


def netlists(system: System) -> list[tuple[float, float]]:
    """Return area in um2 and clock in MHz of each netlist that has a legal clock."""
    found = []
    for area, reached in (("area_um2", "clock_mhz"), ("fastest_um2", "fastest_mhz")):
        own = clock(system, reached)
        if isinstance(own, int | float):
            found.append((system["figures"][area], float(own)))
    return found


def _plain(name: str) -> Callable[[System], Value]:
    return lambda system: figure(system, name)


def _memory(name: str, where: str) -> Callable[[System], Value]:
    return lambda system: counted(system, where, system.get("memory", {}).get(name))


ROWS: tuple[tuple[str, Callable[[System], Value], str], ...] = (
    ("perplexity, 256 tokens cached", _plain("perplexity"), "{:.2f}"),
    ("perplexity, at most 128 of 256 tokens cached", _plain("perplexity_128"), "{:.2f}"),
    (
        "perplexity with the paper's refresh of eDRAM, which loses bits; one window of 128 tokens",
        _plain("perplexity_lost_bits"),
        "{:.2f}",
    ),
    ("off-chip bytes/token", off_chip_bytes, "{:,.0f}"),
    ("off-chip bytes/token, weights unpacked", _plain("bytes_unpacked"), "{:,.0f}"),
    ("bytes/token at the DRAM banks (not off-chip)", bank_bytes, "{:,.0f}"),
    ("cycles/token (unlike ports: see bytes/cycle)", _plain("cycles"), "{:,.0f}"),
    ("ideal cycles/token, by each design's own bound", _plain("bound"), "{:,.0f}"),
    (
        "off-chip bytes/cycle, measured",
        lambda system: per_cycle(system, off_chip_bytes(system)),
        "{:,.0f}",
    ),
    ("off-chip bytes/cycle, widest port", _memory("port_bytes", OFF_CHIP), "{:,.0f}"),
    (
        "off-chip bytes/cycle, the paper's memory at the paper's clock",
        _memory("paper_bytes_per_cycle", OFF_CHIP),
        "{:,.0f}",
    ),
    (
        "ideal cycles/token at the paper's bandwidth",
        lambda system: counted(system, OFF_CHIP, bound_at_paper(system)),
        "{:,.0f}",
    ),
    (
        "bytes/cycle at the DRAM banks, measured",
        lambda system: per_cycle(system, bank_bytes(system)),
        "{:,.0f}",
    ),
    ("bytes/cycle at the DRAM banks, at most", _memory("port_bytes", BANKS), "{:,.0f}"),
    ("multipliers", _plain("multipliers"), "{:,}"),
    (
        "area-optimised logic, um2 (SRAM, eDRAM, DRAM, wires excluded)",
        _plain("area_um2"),
        "{:,.0f}",
    ),
    (
        "its clock, MHz (default wire load)",
        lambda system: clock(system, "clock_mhz"),
        "{:,.0f}",
    ),
    (
        "energy of the logic only, mJ/token (SRAM, eDRAM, DRAM, glitches excluded)",
        energy,
        "{:.2f}",
    ),
    (
        "delay-optimised logic, um2 (SRAM, eDRAM, DRAM, wires excluded)",
        _plain("fastest_um2"),
        "{:,.0f}",
    ),
    (
        "its clock, MHz (default wire load)",
        lambda system: clock(system, "fastest_mhz"),
        "{:,.0f}",
    ),
    ("on-chip memory, bits (excluded from area and energy)", _plain("memory_bits"), "{:,.0f}"),
)
"""The table: label, value of a system, format. A label specifies what its figures exclude."""


def commands_of(system: System) -> dict[str, str]:
    """Return the commands of a system's figures, and of its further runs in Verilog."""
    runs = {f"run with `{run['memory']}`": run["command"] for run in system.get("with_memory", ())}
    contexts = [run for run in system.get("contexts", ()) if "command" in run]
    if contexts:
        cached = [f"{run['cached']:,}" for run in contexts]
        runs[f"tokens with {', '.join(cached)} cached"] = contexts[0]["command"]
    return {**system["commands"], **runs}


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables by their names, as Markdown."""
    systems = checked(data)["systems"]
    lines = [["", *(system["name"] for system in systems.values())]]
    lines.append(["---"] * len(lines[0]))
    for label, of, shown in ROWS:
        lines.append([label, *(cell(system, of, shown) for system in systems.values())])
    commands = [
        f"| {system['name']} | {what} | `{command}` |"
        for system in systems.values()
        for what, command in commands_of(system).items()
    ]
    return {
        "comparison": "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + LEGEND,
        "commands": "\n".join(["| system | figure | command |", "|---|---|---|", *commands]),
    }


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One axis of the plot, whose figures are all of one kind.

    Parameters
    ----------
    label : str
        Axis label with the unit and the direction.
    series : tuple of (str, Callable[[System], Value])
        Legend entry and value of each figure; the first series decides which systems have a row.
    unit : float
        Divisor of the figures.
    shown : str
        Format of the number at the end of a bar.
    """

    label: str
    series: tuple[tuple[str, Callable[[System], Value]], ...]
    unit: float = 1.0
    shown: str = "{:.2f}"

    def systems(self, data: dict[str, Any]) -> dict[str, System]:
        """Return the systems that have the first figure."""
        first = self.series[0][1]
        return {
            key: system
            for key, system in data["systems"].items()
            if isinstance(first(system), int | float)
        }


PANELS = (
    Panel(
        label="perplexity (lower is better)",
        series=(
            ("256 tokens cached", _plain("perplexity")),
            ("at most 128 cached", _plain("perplexity_128")),
        ),
    ),
    Panel(
        label="off-chip MB/token (lower is better)",
        series=(
            ("as transferred", off_chip_bytes),
            ("same run, weights unpacked", _plain("bytes_unpacked")),
        ),
        unit=1e6,
        shown="{:.1f}",
    ),
)
"""The plot. Cycles, clocks and energies are in no panel: the systems' ports, clocks and excluded
parts differ."""

_HEIGHT = 0.4
_OPACITIES = (1.0, 0.45)
"""Opacity of the colour of a system, by series."""


def comparison_plot(data: dict[str, Any]) -> Figure:
    """Return a panel for each kind of figure, with a row for each system that has it."""
    figure_ = Figure(figsize=(9.4, 4.4), layout="constrained")
    for axes, panel in zip(figure_.subplots(1, len(PANELS)), PANELS, strict=True):
        _draw(axes, panel, panel.systems(checked(data)))
    return figure_


def _draw(axes: Axes, panel: Panel, systems: Mapping[str, System]) -> None:
    """Plot the bars of a panel, the value at the end of each bar, and the legend."""
    series = tuple(zip(panel.series, _OPACITIES, strict=True))
    colors = [SYSTEMS.get(key, THEIRS) for key in systems]
    values = [[of(system) for (_, of), _ in series] for system in systems.values()]
    longest = 0.0
    for number, (_, opacity) in enumerate(series):
        places, lengths, shown = [], [], []
        for row, own in enumerate(values):
            value = own[number]
            if isinstance(value, int | float):
                # A row with one bar has it in the middle.
                both = all(isinstance(one, int | float) for one in own)
                places.append(row + (number - 0.5) * _HEIGHT * both)
                lengths.append(value / panel.unit)
                shown.append(colors[row])
        axes.barh(places, lengths, _HEIGHT, color=shown, alpha=opacity, linewidth=0)
        for place, length in zip(places, lengths, strict=True):
            text = " " + panel.shown.format(length)
            axes.text(length, place, text, va="center", fontsize=FONT, color=INK)
            longest = max(longest, length)
    axes.set_yticks(range(len(systems)), [own["name"] for own in systems.values()])
    axes.set_ylim(len(systems) - 0.4, -0.6)
    axes.set_xlim(0, 1.25 * (longest or 1))
    axes.set_xlabel(panel.label)
    plain(axes)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    axes.legend(
        handles=[Patch(color=MUTED, alpha=opacity, label=own) for (own, _), opacity in series],
        frameon=False, fontsize=FONT, labelcolor=MUTED, loc="lower left", bbox_to_anchor=(0, 1),
    )  # fmt: skip


def drawing(data: dict[str, Any]) -> str:
    """Return the plot as SVG."""
    return svg(comparison_plot(data), TITLE)
