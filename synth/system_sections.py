"""The report's sections on systems: the paper's figure as a diagram, and its claims with ours."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hdl.paths import ROOT
from synth.cells import Cell, Read, Table, page_link
from synth.diagram import draw_diagram
from synth.figures import parts_of
from synth.gallery import Note, Picture
from synth.occupancy import occupancy_bars
from synth.papers import NOT_MEASURED, Cycles, Headline, Paper
from synth.plots import Bar, bars_plot
from synth.results import Measured, Record
from synth.svg import SYSTEMS, THEIRS, svg
from synth.treemap import treemap
from synth.unit_rows import SHOWN, main_synthesis


@dataclass(frozen=True, kw_only=True)
class System:
    """One paper's section, with its diagram if the paper is built."""

    paper: Paper
    link: str
    diagram: Picture | None
    headlines: Table
    study: Table | None


def system(
    paper: Paper, units: Mapping[str, Sequence[Measured]], study: Record, directory: Path
) -> System:
    """Return a paper's section."""
    return System(
        paper=paper,
        link=page_link(f"{paper.name}/README.md", directory),
        diagram=diagram_picture(paper),
        headlines=Table(
            columns=("what", "paper", "here", "from"),
            rows=[
                _headline(headline, units, directory)
                for headline in paper.headlines
                if headline.verdict != NOT_MEASURED
            ],
        ),
        study=_study(study, directory) if study.values else None,
    )


def diagram_picture(paper: Paper) -> Picture | None:
    """Return the boxes of a system after the paper's figure; None if they are not described."""
    if not paper.diagram:
        return None
    title = f"{paper.title}, after its {paper.diagram.figure}"
    return Picture(title=title, svg=svg(draw_diagram(paper.diagram), title))


@dataclass(frozen=True, kw_only=True)
class PartAreas:
    """Areas of a system's parts in um2, what was synthesised, and the file that has the areas."""

    areas: Mapping[str, float]
    netlist: str
    file: Path


def part_areas(paper: Paper, results: Sequence[Measured]) -> PartAreas | None:
    """Return the areas of a system's parts: of a synthesis, or else of the paper's file."""
    for record in (main_synthesis(result) for result in results if result.preset in SHOWN):
        if parts := parts_of(record.values):
            netlist = f"preset {record.values['preset']}"
            return PartAreas(areas=parts, netlist=netlist, file=record.file)
    if known := paper.areas:
        page = ROOT / "docs" / known.page
        return PartAreas(areas=known.by_part(), netlist=known.netlist, file=page)
    return None


def area_picture(paper: Paper, results: Sequence[Measured], directory: Path) -> Picture | None:
    """Return the treemap of a system's logic by part; None if no areas are known."""
    known = part_areas(paper, results)
    if not known:
        return None
    areas = {name: area for name, area in known.areas.items() if area > 0}
    ordered = sorted(areas.items(), key=lambda item: -item[1])
    whole = sum(areas.values())
    theirs = {part.name: part.paper for part in paper.parts if part.paper}
    of_theirs = sum(theirs.values())
    notes = [
        Note(
            text=f"{name}: {area:,.0f} µm², {area / whole:.1%}"
            + (f" (paper: {theirs[name] / of_theirs:.0%})" if name in theirs else ""),
            link=os.path.relpath(known.file, directory),
        )
        for name, area in ordered
    ]
    return Picture(
        title=f"{paper.title}: {whole:,.0f} µm²",
        svg=svg(treemap(ordered, SYSTEMS[paper.name]), f"Area of {paper.title} by part"),
        notes=notes,
        caption=known.netlist,
    )


def occupancy_picture(paper: Paper, directory: Path) -> Picture | None:
    """Return the plot of a system's cycles by kind of work; None if they are not known."""
    known = paper.occupancy
    if known is None:
        return None
    bars = occupancy_bars(paper.name, known)
    limits = 0, max(bar.value for bar in bars)
    plot = bars_plot(bars, label=f"% of {known.total:,} cycles", limits=limits)
    return Picture(
        title=f"{paper.title}: {known.share:.1%}",
        svg=svg(plot, f"Cycles of a step of {paper.title} by kind of work"),
        notes=[Note(text=known.unit, link=page_link(known.page, directory), command=known.command)],
        caption=known.step,
    )


def cycles_bars(paper: Paper) -> list[Bar]:
    """Return the excess of measured cycles over the formulas in percent, numbered."""
    return [
        Bar(
            name=f"{number}  {item.what}",
            words=f"{item.cycles:,} of {item.ideal:,}",
            value=100 * (item.cycles / item.ideal - 1),
            color=SYSTEMS.get(paper.name, THEIRS),
            kept=True,
        )
        for number, item in enumerate(paper.cycles, 1)
    ]


def cycles_notes(items: Sequence[Cycles], directory: Path) -> list[Note]:
    """Return each formula, the command that measures its cycles, and the page with the result."""
    return [
        Note(text=item.formula, link=page_link(item.page, directory), command=item.command)
        for item in items
    ]


def _headline(
    headline: Headline, units: Mapping[str, Sequence[Measured]], directory: Path
) -> list[Cell]:
    """Return the row of one claim."""
    if headline.ratio:
        ours, source = _ratio(headline, units, directory)
    elif headline.quantity:
        ours, source = _quantity(headline, units, directory)
    else:
        link = page_link(headline.page or headline.published_page, directory)
        ours = Cell(text=headline.here, link=link, kept=True)
        source = Cell(text=headline.command)
    words = Cell(text=headline.claim), Cell(text=headline.paper)
    return [*words, replace(ours, number=False), source]


def _ratio(
    headline: Headline, units: Mapping[str, Sequence[Measured]], directory: Path
) -> tuple[Cell, Cell]:
    """Return the area ratio of two units, for the same preset and library."""
    part, whole = headline.ratio
    command = f"make synth TOP={part}, TOP={whole}"
    for preset in SHOWN:
        both = [
            main_synthesis(result)
            for top in (part, whole)
            for result in units.get(top, ())
            if result.preset == preset and result.synth
        ]
        if len(both) == 2 and both[0].values["liberty"] == both[1].values["liberty"]:
            areas = [record.values["points"][0]["nand2_equivalents"] for record in both]
            cell = Read(record=both[0], directory=directory).cell(f"{areas[0] / areas[1]:.2%}")
            kept = any(record.kept for record in both)
            return replace(cell, kept=kept), Cell(text=f"{command} PRESET={preset}")
    return Cell(text="not measured"), Cell(text=command)


def _quantity(
    headline: Headline, units: Mapping[str, Sequence[Measured]], directory: Path
) -> tuple[Cell, Cell]:
    """Return a figure of the delay-optimised netlist of a unit."""
    top, key = headline.quantity
    for result in units.get(top, ()):
        record = main_synthesis(result)
        points = record.values.get("points")
        if result.preset in SHOWN and points and points[-1].get(key) is not None:
            cell = Read(record=record, directory=directory).part(points[-1])(key, headline.form)
            return cell, Cell(text=f"make synth TOP={top} PRESET={result.preset}")
    return Cell(text="not measured"), Cell(text=f"make synth TOP={top}")


def _study(study: Record, directory: Path) -> Table:
    """Return the claims of a study as it was made in this build."""
    read = Read(record=study, directory=directory)
    rows = [
        [
            Cell(text=claim["what"]),
            Cell(text=claim["paper"]),
            Cell(text=claim["ours"], link=read.cell("").link),
            Cell(text=claim["holds"]),
        ]
        for claim in study.values["claims"]
    ]
    return Table(columns=("claim", "paper", "here", "holds"), rows=rows)
