"""The report's sections on systems: the paper's figure as a diagram, and its claims with ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from synth.cells import Cell, Read, Table, page_link
from synth.diagram import draw_diagram
from synth.figures import parts_of
from synth.papers import Cycles, Headline, Paper
from synth.plots import Bar
from synth.results import Measured, Record
from synth.svg import svg
from synth.unit_rows import SHOWN, main_synthesis

_NOTHING = Cell(text="")


@dataclass(frozen=True, kw_only=True)
class System:
    """One paper's section; `diagram` is the text of an SVG image, or empty."""

    paper: Paper
    link: str
    diagram: str
    headlines: Table
    study: Table | None


def system(
    paper: Paper, units: Mapping[str, Sequence[Measured]], study: Record, directory: Path
) -> System:
    """Return a paper's section."""
    return System(
        paper=paper,
        link=page_link(f"{paper.name}/README.md", directory),
        diagram=(
            svg(draw_diagram(paper.diagram), f"{paper.title}, after its {paper.diagram.figure}")
            if paper.diagram
            else ""
        ),
        headlines=Table(
            columns=("what", "paper", "here", "from"),
            rows=[_headline(headline, units, directory) for headline in paper.headlines],
        ),
        study=_study(study, directory) if study.values else None,
    )


def shares_bars(paper: Paper, results: Sequence[Measured]) -> list[Bar]:
    """Return the shares of a system's parts in its logic area, in percent; empty if unknown."""
    real = [result for result in results if result.preset in SHOWN]
    records = [main_synthesis(result) for result in real if result.synth]
    record = next((record for record in records if parts_of(record.values)), None)
    if record is None:
        return []
    areas = parts_of(record.values)
    whole = sum(areas.values())
    theirs = sum(part.paper for part in paper.parts)
    papers = {part.name: part.paper / theirs for part in paper.parts if part.paper}
    return [
        Bar(
            name=name,
            words=f"{area / whole:.1%}, {area:,.0f} µm²",
            value=100 * area / whole,
            reference=100 * papers[name] if name in papers else None,
            kept=record.kept,
        )
        for name, area in areas.items()
    ]


def cycles_bars(paper: Paper) -> list[Bar]:
    """Return the excess of measured cycles over the formulas in percent, numbered."""
    return [
        Bar(
            name=f"{number}  {item.what}",
            words=f"{item.cycles:,} of {item.ideal:,}",
            value=100 * (item.cycles / item.ideal - 1),
            kept=True,
        )
        for number, item in enumerate(paper.cycles, 1)
    ]


def cycles_rows(items: Sequence[Cycles], directory: Path) -> list[tuple[str, str, str]]:
    """Return each formula, the command that measures its cycles, and the page with the result."""
    return [(item.formula, item.command, page_link(item.page, directory)) for item in items]


def _headline(
    headline: Headline, units: Mapping[str, Sequence[Measured]], directory: Path
) -> list[Cell]:
    """Return the row of one claim."""
    if headline.ratio:
        ours, source = _ratio(headline, units, directory)
    elif headline.quantity:
        ours, source = _quantity(headline, units, directory)
    elif headline.ours:
        link = page_link(headline.page, directory)
        ours = Cell(text=headline.ours, link=link, kept=True)
        source = Cell(text=headline.command)
    else:
        ours, source = Cell(text="not built"), _NOTHING
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
