"""The verb ``report``: one page of everything measured, beside the papers and other people's work.

Nothing is computed here that is not in a JSON file below ``build/``; each figure carries a link to
the file it was read from.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from hdl.errors import UserError
from synth.plots import area_plot, delay_plot

REFERENCE = Path(__file__).with_name("reference")
TEMPLATES = Path(__file__).with_name("templates")
MARKS = ("<!-- units: written by `make report README=1` -->", "<!-- end of units -->")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the build directory knows of one unit at one preset; a part not measured is empty."""

    top: str
    preset: str
    directory: Path
    sim: dict[str, Any] = field(default_factory=dict)
    synth: dict[str, Any] = field(default_factory=dict)
    fpga: dict[str, Any] = field(default_factory=dict)


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


def collect(build: Path) -> list[Measured]:
    """Read every ``build/<top>/<preset>/{sim,synth,fpga}.json``, in the order of their names."""
    found: dict[Path, dict[str, Any]] = {}
    for kind in ("sim", "synth", "fpga"):
        for path in sorted(build.glob(f"*/*/{kind}.json")):
            found.setdefault(path.parent, {})[kind] = json.loads(path.read_text())
    return [
        Measured(top=directory.parent.name, preset=directory.name, directory=directory, **parts)
        for directory, parts in sorted(found.items())
    ]


def write_report(
    catalog: Iterable[Any], results: Sequence[Measured], directory: Path
) -> list[Path]:
    """Write ``report.html``, ``report.md`` and the plots.

    Parameters
    ----------
    catalog : Iterable[Any]
        The units, with `top`, `paper`, `summary`, `latency` and `throughput`.
    results : Sequence[Measured]
        What `collect` found.
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
        _peers(results, directory),
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


def readme_table(catalog: Iterable[Any], results: Sequence[Measured]) -> str:
    """Return the table of units for the README, from the catalog and what was measured."""
    lines = ["| unit | what it does | latency | throughput | area |", "|---|---|---|---|---|"]
    for entry in catalog:
        area = next(
            (_area_words(result) for result in results if result.top == entry.top and result.synth),
            "not measured",
        )
        lines.append(
            f"| `{entry.top}` | {entry.summary} | {entry.latency} | {entry.throughput} | {area} |"
        )
    return "\n".join(lines)


def write_readme_table(
    catalog: Iterable[Any], results: Sequence[Measured], readme: Path
) -> list[Path]:
    """Renew the table between its two marks in the README.

    Raises
    ------
    UserError
        If the README does not have the marks.
    """
    text = readme.read_text() if readme.exists() else ""
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    if not re.search(pattern, text, flags=re.S):
        raise UserError(f"README must have a line {MARKS[0]!r} and a line {MARKS[1]!r}")
    table = f"{MARKS[0]}\n{readme_table(catalog, results)}\n{MARKS[1]}"
    readme.write_text(re.sub(pattern, lambda _: table, text, flags=re.S))
    return [readme]


def _area_words(result: Measured) -> str:
    """Write a unit's area as the README has it."""
    synth = result.synth
    area = f"{synth['nand2_equivalents']:,.0f} NAND2"
    if synth["memory_bits"]:
        area += f" + {synth['memory_bits']:,} bits"
    return f"{area} ({result.preset}, {synth['liberty']})"


def _units(entries: dict[str, Any], results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of units."""
    rows = []
    for result in results:
        entry = entries.get(result.top)
        synth, sim = (_Linked(result, kind, directory) for kind in ("synth", "sim"))
        fastest = synth.part(next(reversed(result.synth.get("points", [])), {}))
        rows.append(
            [
                Figure(text=f"{result.top} / {result.preset}"),
                Figure(text=entry.summary if entry else ""),
                Figure(text=entry.latency if entry else ""),
                Figure(text=entry.throughput if entry else ""),
                sim("utilization", "{:.1%}"),
                synth("area_um2", "{:,.0f}"),
                synth("sequential_um2", "{:,.0f}"),
                synth("memory_bits", "{:,}"),
                synth("nand2_equivalents", "{:,.0f}"),
                _per_operation(entry, result, directory),
                synth("fmax_mhz", "{:,.0f}"),
                synth("power_mw", "{:.3g}"),
                fastest("area_um2", "{:,.0f}"),
                fastest("fmax_mhz", "{:,.0f}"),
                synth("liberty", "{}"),
            ]
        )
    measured = [result for result in results if result.synth.get("area_um2")]
    plots = []
    if measured:
        plots.append(
            Plot(
                title="Area of the units",
                file="area.svg",
                svg=area_plot(
                    [f"{result.top} / {result.preset}" for result in measured],
                    [result.synth["logic_um2"] for result in measured],
                    [result.synth["sequential_um2"] for result in measured],
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


def _per_operation(entry: Any, result: Measured, directory: Path) -> Figure:
    """Return the gates for one operation a cycle, where it is known what an operation is."""
    operations = tomllib.loads((REFERENCE / "operations.toml").read_text())
    known = operations.get(result.top)
    if not known or not result.synth or not entry or result.preset not in entry.presets:
        return Figure(text="-")
    parameters = entry.presets[result.preset]
    each_cycle = math.prod(
        factor if isinstance(factor, int) else attrgetter(factor)(parameters)
        for factor in known["factors"]
    )
    link = os.path.relpath(result.directory / "synth.json", directory)
    gates = result.synth["nand2_equivalents"] / each_cycle
    return Figure(text=f"{gates:,.0f} a {known['operation']}", link=link, number=True)


def _fpga(results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of FPGA figures."""
    rows = []
    for result in results:
        for name, device in result.fpga.get("devices", {}).items():
            link = os.path.relpath(result.directory / "fpga.json", directory)
            fmax = f"{device['fmax_mhz']:.0f}" if device["fmax_mhz"] else "-"
            cells = [f"{device[kind]:g}" for kind in ("lut", "ff", "dsp", "bram")]
            rows.append(
                [
                    Figure(text=f"{result.top} / {result.preset}"),
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
    synthesised = [result for result in results if result.synth]
    for part, whole in product(synthesised, repeat=2):
        same = all(part.synth[key] == whole.synth[key] for key in ("preset", "liberty_digest"))
        if same and (part.top, whole.top) == (headline["part"], headline["whole"]):
            share = part.synth["nand2_equivalents"] / whole.synth["nand2_equivalents"]
            link = os.path.relpath(part.directory / "synth.json", directory)
            return Figure(text=f"{share:.4g} ({part.preset})", link=link, number=True)
    return Figure(text="-")


def _member(headline: dict[str, Any], results: Sequence[Measured], directory: Path) -> Figure:
    """Return a member of one unit's JSON."""
    kind, key = headline["quantity"].split(".")
    for result in results:
        value = getattr(result, kind).get(key)
        if result.top == headline["unit"] and value is not None:
            link = os.path.relpath(result.directory / f"{kind}.json", directory)
            return Figure(text=f"{value:.4g} ({result.preset})", link=link, number=True)
    return Figure(text="-")


def _peers(results: Sequence[Measured], directory: Path) -> Section:
    """Make the table of other people's circuits, and of ours on the same library."""
    reference = tomllib.loads((REFERENCE / "peers.toml").read_text())
    peers = reference["peer"]
    rows = [
        [
            Figure(text=peer["like"]),
            Figure(text=peer["name"]),
            Figure(text=f"{peer['area_um2']:,}", number=True),
            Figure(text=f"{peer['delay_ps']:,}", number=True),
        ]
        for peer in sorted(peers, key=lambda peer: peer["like"])
    ]
    ours = []
    for result in results:
        plain = result.synth.get("plain")
        if plain and result.synth["liberty"] == reference["library"]:
            name = f"{result.top} / {result.preset}"
            link = os.path.relpath(result.directory / "synth.json", directory)
            area, delay = plain["area_um2"], plain["mapper_delay_ps"]
            ours.append((name, area, delay, True))
            rows.append(
                [
                    Figure(text="ours"),
                    Figure(text=name),
                    Figure(text=f"{area:,.0f}", link=link, number=True),
                    Figure(text=f"{delay:,.0f}", link=link, number=True),
                ]
            )
    points = [(peer["name"], peer["area_um2"], peer["delay_ps"], False) for peer in peers]
    points += ours
    plot = Plot(title="Area and delay", file="peers.svg", svg=delay_plot(points))
    note = (
        "Other people's circuits and ours on NanGate 45 nm, all mapped by Yosys's own script, "
        "flattened, without sizing. Differences under 5 % are noise."
    )
    columns = ("does", "circuit", "area um2", "ABC delay ps")
    return Section(
        title="Beside other designs", note=note, columns=columns, rows=rows, plots=[plot]
    )


class _Linked:
    """Figures of one JSON file, each with a link to it."""

    def __init__(self, result: Measured, kind: str, directory: Path) -> None:
        self._values: dict[str, Any] = getattr(result, kind)
        self._link = os.path.relpath(result.directory / f"{kind}.json", directory)

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
