"""The verb ``report``: one page with all measurements, the papers' figures and other projects'.

The verb measures nothing. Each figure has a link to its file. Figures that this build lacks are
read from `docs/figures.json` and marked.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hdl.paths import replace_text
from synth.cells import Cell, Read, Table
from synth.figures import FIGURES, Figures, completed
from synth.five_systems import five_systems
from synth.gallery import Gallery, Note, Picture, explored, laid_out
from synth.long_tests import long_tests
from synth.occupancy import occupancy_plot
from synth.operators import compared_circuits
from synth.papers import Paper, read_papers
from synth.plots import Bar, bars_plot, peers_plot
from synth.results import Measured, Record
from synth.svg import DARK, SYSTEMS, THEIRS, VARIABLES, svg
from synth.system_sections import (
    area_picture,
    cycles_bars,
    cycles_notes,
    occupancy_picture,
    system,
)
from synth.unit_rows import COLUMNS, SHOWN, by_unit, unit_row

TEMPLATES = Path(__file__).with_name("templates")


def write_report(
    catalog: Iterable[Any],
    results: Sequence[Measured],
    operators: Record,
    directory: Path,
    *,
    figures: Figures,
    studies: Mapping[str, Record],
    sweeps: Sequence[Record] = (),
) -> list[Path]:
    """Write ``report.html``.

    Parameters
    ----------
    catalog : Iterable[Any]
        The units, with `top`, `paper`, `summary`, `source`, `latency`, `throughput`,
        `presets` and `files`.
    results : Sequence[Measured]
        Results of `collect`.
    operators : Record
        Output of `synth.operators.measure_operators`.
    directory : Path
        Folder of the page.
    figures : Figures
        Stored figures, which complete the results.
    studies : Mapping[str, Record]
        Results of `collect_studies`.
    sweeps : Sequence[Record]
        Results of `collect_sweeps`.

    Returns
    -------
    list[Path]
        The page.
    """
    entries = list(catalog)
    units = by_unit(completed(results, figures))
    if not operators.values and figures.get("operators"):
        operators = Record(file=FIGURES, values=figures["operators"], kept=True)
    built = {entry.paper for entry in entries}
    papers = [paper for paper in read_papers() if paper.name in built]
    titles = {paper.name: paper.title for paper in papers}
    galleries = [
        laid_out(),
        _occupancy(papers, directory),
        _areas(papers, units, directory),
        _cycles(papers, directory),
        _utilisation(entries, units, titles),
        _peers(operators, directory),
        explored(sweeps, directory),
    ]
    nothing = Record(file=directory)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = directory / "report.html"
    text = environment.get_template("report.html").render(
        colors=VARIABLES,
        dark=DARK,
        comparison=five_systems(directory),
        legend={name: title for name, title in titles.items() if name in SYSTEMS},
        galleries=[gallery for gallery in galleries if gallery.pictures],
        systems=[
            system(paper, units, studies.get(paper.name, nothing), directory) for paper in papers
        ],
        columns=COLUMNS,
        units={
            titles.get(owner, f"shared: {owner}"): [
                unit_row(entry, units.get(entry.top, ()), directory)
                for entry in entries
                if entry.paper == owner
            ]
            for owner in dict.fromkeys(entry.paper for entry in entries)
        },
        count=len(entries),
        long_tests=long_tests(directory),
        kept=any(record.kept for record in _records(units)),
    )
    replace_text(page, text + "\n")
    return [page]


def _records(units: Mapping[str, Sequence[Measured]]) -> Iterable[Record]:
    """Yield all records."""
    for results in units.values():
        for result in results:
            yield from (result.sim, result.netlist_sim, result.fpga, *result.synth)


def _peers(operators: Record, directory: Path) -> Gallery:
    """Return the comparison of our circuits with those of other projects."""
    groups = compared_circuits(operators.values.get("costs", {}))
    read = Read(record=operators, directory=directory)
    rows = [
        [
            Cell(text=work),
            Cell(text=str(number)),
            Cell(text=circuit.name),
            Cell(text="ours" if circuit.ours else ""),
            Cell(text=recipe),
            read.cell(f"{area:,.0f}") if circuit.ours else Cell(text=f"{area:,.0f}", number=True),
            read.cell(f"{delay:,.0f}") if circuit.ours else Cell(text=f"{delay:,.0f}", number=True),
        ]
        for work, circuits in groups.items()
        for number, circuit in enumerate(circuits, 1)
        for recipe, area, delay in circuit.points
    ]
    note = (
        "Circuits that do the same work, ours in red and other people's in grey; smaller and "
        "faster is to the lower left. NanGate 45 nm, flattened, delay by ABC without wires. Round "
        "marks are mapped by Yosys's own script, which alone compares like with like; squares and "
        "triangles are ours by our flow, for area and for speed. Differences under 5 % are noise."
    )
    return Gallery(
        title="Area and delay compared with other designs",
        note=note,
        columns=3,
        pictures=[
            Picture(
                title=work,
                svg=svg(peers_plot(circuits), f"Area and delay: {work}"),
                notes=[
                    Note(text=circuit.name, color="ours" if circuit.ours else "")
                    for circuit in circuits
                ],
            )
            for work, circuits in groups.items()
        ],
        table=Table(
            columns=("does", "number", "circuit", "whose", "mapped for", "µm²", "ps"), rows=rows
        ),
    )


def _occupancy(papers: Sequence[Paper], directory: Path) -> Gallery:
    """Return the plots of the cycles in which each system's limiting unit works."""
    known = [(paper.name, paper.title, paper.occupancy) for paper in papers]
    systems = [(name, title, own) for name, title, own in known if own]
    pictures = [occupancy_picture(paper, directory) for paper in papers]
    if systems:
        drawing = svg(occupancy_plot(systems), "Occupancy of the systems")
        pictures.insert(0, Picture(title="All systems", svg=drawing))
    note = (
        "Share of the cycles of a step in which the limiting unit works on linear layers or "
        "attention. The limiting unit is the array or the memory port that the ideal cycles count. "
        "The steps of the systems differ, and so do their ports: compare shares, not cycles."
    )
    shown = [picture for picture in pictures if picture]
    return Gallery(title="Occupancy", note=note, columns=3, pictures=shown)


def _areas(
    papers: Sequence[Paper], units: Mapping[str, Sequence[Measured]], directory: Path
) -> Gallery:
    """Return the treemaps of each system's area by part."""
    pictures = [area_picture(paper, units.get(paper.name, ()), directory) for paper in papers]
    note = (
        "Logic of the area-optimised netlist in NanGate 45 nm by part; memories and wires are "
        "excluded. A rectangle is in proportion to its area within one system. The netlists have "
        "unlike dimensions, and some are older than the present Verilog: the page of each has the "
        "reason."
    )
    shown = [picture for picture in pictures if picture]
    return Gallery(title="Area by part", note=note, columns=3, pictures=shown)


def _utilisation(
    entries: Sequence[Any], units: Mapping[str, Sequence[Measured]], titles: Mapping[str, str]
) -> Gallery:
    """Return the plots of each unit's utilisation, one per paper."""
    bars: dict[str, list[Bar]] = {}
    for entry in entries:
        real = (result for result in units.get(entry.top, ()) if result.preset in SHOWN)
        result = next((result for result in real if result.sim.values.get("utilization")), None)
        if result is not None:
            values = result.sim.values
            bars.setdefault(entry.paper, []).append(
                Bar(
                    name=entry.top,
                    words=f"{values['utilization']:.1%}, {result.preset}",
                    value=100 * values["utilization"],
                    color=SYSTEMS.get(entry.paper, THEIRS),
                    kept=result.sim.kept,
                )
            )
    note = (
        "Ideal cycles over measured cycles of a unit's steady work, on a real model's tensors. "
        "Units without a stored simulation at real dimensions are not shown."
    )
    pictures = []
    for paper, own in bars.items():
        title = titles.get(paper, f"shared: {paper}")
        plot = bars_plot(own, label="% of the ideal", limits=(0, 100))
        pictures.append(Picture(title=title, svg=svg(plot, f"Utilisation of units: {title}")))
    return Gallery(title="Utilisation", note=note, columns=3, pictures=pictures)


def _cycles(papers: Sequence[Paper], directory: Path) -> Gallery:
    """Return the plots of measured cycles in excess of the papers' formulas."""
    note = "Measured cycles in excess of the paper's formula; the labels are measured and formula."
    pictures = []
    for paper in papers:
        if bars := cycles_bars(paper):
            # A measurement equal to the formula results in a bar without length.
            limits = 0, max(1.05 * max(bar.value for bar in bars), 1.0)
            plot = bars_plot(bars, label="% of cycles beyond the formula's", limits=limits)
            drawing = svg(plot, f"Cycles of {paper.title} beyond its formulas")
            notes = cycles_notes(paper.cycles, directory)
            pictures.append(Picture(title=paper.title, svg=drawing, notes=notes))
    return Gallery(
        title="Cycles compared with the papers' formulas", note=note, columns=3, pictures=pictures
    )
