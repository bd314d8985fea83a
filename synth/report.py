"""The verb ``report``: one page of everything measured, beside the papers and other people's work.

Nothing is computed here that is not in a JSON file below ``build/``; each figure carries a link to
the file it was read from.
"""

import math
import os
import tomllib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from synth.operators import beside
from synth.plots import area_plot, peers_plot
from synth.results import Measured, Record

REFERENCE = Path(__file__).with_name("reference")
TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One cell of a table: its text, and the file that the figure was read from."""

    text: str
    link: str = ""
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plot, as text of an SVG file."""

    title: str
    file: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table of the page and the plots below it."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Figure]]
    plots: Sequence[Plot] = ()


def write_report(
    catalog: Iterable[Any], results: Sequence[Measured], operators: Record, directory: Path
) -> list[Path]:
    """Write ``report.html``, ``report.md`` and the plots.

    Parameters
    ----------
    catalog : Iterable[Any]
        The units, with `top`, `paper`, `summary`, `latency` and `throughput`.
    results : Sequence[Measured]
        What `collect` found.
    operators : Record
        What `synth.operators.measure_operators` wrote.
    directory : Path
        Where the page goes.

    Returns
    -------
    list[Path]
        The pages.
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries = {entry.top: entry for entry in catalog}
    sections = [
        _units(entries, results, directory),
        _fpga(results, directory),
        _headlines(results, directory),
        _peers(operators, directory),
    ]
    sections = [section for section in sections if section.rows]
    for section in sections:
        for plot in section.plots:
            (directory / plot.file).write_text(plot.svg)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=lambda name: bool(name and ".html" in name)
    )
    pages = []
    for name in ("report.html", "report.md"):
        page = directory / name
        page.write_text(environment.get_template(name).render(sections=sections) + "\n")
        pages.append(page)
    return pages


def _units(entries: dict[str, Any], results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of units."""
    rows = []
    for result, record in _by_library(results):
        entry = entries.get(result.top)
        synth, sim = _Linked(record, directory), _Linked(result.sim, directory)
        fastest = synth.part(next(reversed(record.values.get("points", [])), {}))
        rows.append(
            [
                Figure(text=result.name),
                Figure(text=entry.summary if entry else ""),
                Figure(text=entry.latency if entry else ""),
                Figure(text=entry.throughput if entry else ""),
                sim("utilization", "{:.1%}"),
                synth("area_um2", "{:,.0f}"),
                synth("sequential_um2", "{:,.0f}"),
                synth("memory_bits", "{:,}"),
                synth("nand2_equivalents", "{:,.0f}"),
                _per_operation(entry, result, record, directory),
                synth("fmax_mhz", "{:,.0f}"),
                synth("power_mw", "{:.3g}"),
                fastest("area_um2", "{:,.0f}"),
                fastest("fmax_mhz", "{:,.0f}"),
                synth("liberty", "{}"),
            ]
        )
    measured = [pair for pair in _by_library(results) if pair[1].values.get("area_um2")]
    plots = []
    for library in sorted({record.values["liberty"] for _, record in measured}):
        of_library = [pair for pair in measured if pair[1].values["liberty"] == library]
        plots.append(
            Plot(
                title=f"Area of the units, {library}",
                file=f"area-{library}.svg",
                svg=area_plot(
                    [result.name for result, _ in of_library],
                    [record.values["logic_um2"] for _, record in of_library],
                    [record.values["sequential_um2"] for _, record in of_library],
                ),
            )
        )
    columns = (
        "unit", "function", "latency", "throughput", "utilisation", "area um2", "flip-flops um2",
        "memory bits", "NAND2", "NAND2 per operation and cycle", "fmax MHz", "power mW",
        "fastest um2", "fastest MHz", "library",
    )  # fmt: skip
    note = (
        "Areas and frequencies are of the smallest netlist, and of the fastest; without wires, and "
        "memories are in no area. The JSON holds the corner and the tools' versions."
    )
    return Section(title="Units", note=note, columns=columns, rows=rows, plots=plots)


def _by_library(results: Sequence[Measured]) -> list[tuple[Measured, Record]]:
    """Return each unit with each of its syntheses; with an empty one if there is none."""
    none = Record(file=Path("synth.json"))
    return [(result, record) for result in results for record in result.synth or (none,)]


def operations_each_cycle(top: str, parameters: Any) -> tuple[str, int] | None:
    """Return what a unit does in a cycle at full rate, and how many of it; None if not known."""
    known = tomllib.loads((REFERENCE / "throughput.toml").read_text()).get(top)
    if known is None:
        return None
    factors = (
        factor if isinstance(factor, int) else attrgetter(factor)(parameters)
        for factor in known["factors"]
    )
    return known["operation"], math.prod(factors)


def _per_operation(entry: Any, result: Measured, synth: Record, directory: Path) -> Figure:
    """Return the gates for one operation a cycle, where it is known what an operation is."""
    if not synth.values or not entry or result.preset not in entry.presets:
        return Figure(text="-")
    known = operations_each_cycle(result.top, entry.presets[result.preset])
    if known is None:
        return Figure(text="-")
    operation, each_cycle = known
    gates = synth.values["nand2_equivalents"] / each_cycle
    link = os.path.relpath(synth.file, directory)
    return Figure(text=f"{gates:,.0f} a {operation}", link=link, number=True)


def _fpga(results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of FPGA figures."""
    rows = []
    for result in results:
        for name, device in result.fpga.values.get("devices", {}).items():
            link = os.path.relpath(result.fpga.file, directory)
            fmax = f"{device['fmax_mhz']:.0f}" if device["fmax_mhz"] else "-"
            cells = [f"{device[kind]:g}" for kind in ("lut", "ff", "dsp", "bram")]
            rows.append(
                [
                    Figure(text=result.name),
                    Figure(text=f"{name}: {device['title']}"),
                    *(Figure(text=text, link=link, number=True) for text in [*cells, fmax]),
                    Figure(text=device["method"]),
                ]
            )
    columns = ("unit", "device", "LUT", "FF", "DSP", "block RAM", "fmax MHz", "how")
    return Section(title="FPGA", note="", columns=columns, rows=rows)


def _headlines(results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of the papers' own figures."""
    reference = tomllib.loads((REFERENCE / "headlines.toml").read_text())
    rows = []
    for headline in reference["headline"]:
        measured = Figure(text="-")
        if "part" in headline:
            measured = _area_ratio(headline, results, directory)
        elif "unit" in headline:
            measured = _member(headline, results, directory)
        rows.append(
            [
                Figure(text=headline["paper"]),
                Figure(text=headline["claim"]),
                Figure(text=f"{headline['value']:g}", number=True),
                measured,
            ]
        )
    columns = ("paper", "claim", "theirs", "ours")
    return Section(title="The papers' headline numbers", note="", columns=columns, rows=rows)


def _area_ratio(headline: dict[str, Any], results: Sequence[Measured], directory: Path) -> Figure:
    """Return how large one unit is beside another, of the same preset and library."""
    synthesised = [pair for pair in _by_library(results) if pair[1].values]
    for (part, ours), (whole, all_of_it) in product(synthesised, repeat=2):
        small, large = ours.values, all_of_it.values
        same = all(small[key] == large[key] for key in ("preset", "liberty_digest"))
        if same and (part.top, whole.top) == (headline["part"], headline["whole"]):
            share = small["nand2_equivalents"] / large["nand2_equivalents"]
            link = os.path.relpath(ours.file, directory)
            return Figure(text=f"{share:.4g} ({part.preset})", link=link, number=True)
    return Figure(text="-")


def _member(headline: dict[str, Any], results: Sequence[Measured], directory: Path) -> Figure:
    """Return a member of one unit's JSON, or of the fastest netlist in it."""
    kind, key = headline["quantity"].split(".")
    for result, synth in _by_library(results):
        fastest = next(reversed(synth.values.get("points", [])), {})
        kinds = {"sim": (result.sim.file, result.sim.values), "fastest": (synth.file, fastest)}
        file, values = kinds[kind]
        if result.top == headline["unit"] and values.get(key) is not None:
            link = os.path.relpath(file, directory)
            text = f"{values[key]:.4g} ({result.preset})"
            return Figure(text=text, link=link, number=True)
    return Figure(text="-")


def _peers(record: Record, directory: Path) -> Section:
    """Make the table of other people's circuits beside ours."""
    link = os.path.relpath(record.file, directory)
    groups = beside(record.values.get("costs", {}))
    rows = [
        [
            Figure(text=work),
            Figure(text="ours" if ours else ""),
            Figure(text=name),
            Figure(text=f"{area:,.0f}", link=link if ours else "", number=True),
            Figure(text=f"{delay:,.0f}", link=link if ours else "", number=True),
        ]
        for work, circuits in groups.items()
        for name, area, delay, ours in circuits
    ]
    plot = Plot(title="Area and delay", file="peers.svg", svg=peers_plot(groups))
    note = (
        "Other people's circuits and ours on NanGate 45 nm, flattened; theirs are mapped by "
        "Yosys's own script, without sizing, as ours are in the rows `plain`. Differences under "
        "5 % are noise."
    )
    columns = ("does", "whose", "circuit", "area um2", "ABC delay ps")
    return Section(
        title="Beside other designs", note=note, columns=columns, rows=rows, plots=[plot]
    )


class _Linked:
    """Figures of one JSON file, each with a link to it."""

    def __init__(self, record: Record, directory: Path) -> None:
        self._values = record.values
        self._link = os.path.relpath(record.file, directory)

    def part(self, values: dict[str, Any]) -> "_Linked":
        """Return figures of a part of the same file."""
        part = copy(self)
        part._values = values
        return part

    def __call__(self, key: str, form: str) -> Figure:
        """Return one figure, or a dash where it was not measured."""
        value = self._values.get(key)
        if value is None:
            return Figure(text="-")
        return Figure(text=form.format(value), link=self._link, number=not isinstance(value, str))
