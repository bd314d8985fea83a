"""Generation of the tables in `docs/` from `docs/figures.json`.

``make report DOCS=1`` copies the results of the build directory into that file and writes each
table of the pages. If a row's figures were measured on other than the present Verilog, by
`docs/digests.json`, the row gets a mark and the table a legend. Tests compare the pages with both
files.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from hdl.paths import BUILD, ROOT, replace_text
from synth import (
    claims,
    comparison,
    composed,
    contexts,
    memory_runs,
    normalised,
    rooflines,
    waterfall,
)
from synth.digests import MARK, Digests, form_of, is_old, kept_digests
from synth.figures import (
    CLOCKS,
    DEVICES,
    FIGURES,
    LIBRARIES,
    WIRED_CLOCK,
    Figures,
    figures_text,
    kept_figures,
    merged,
    wired_mhz,
)
from synth.layout import table as layouts
from synth.operators import Costs, compared_circuits, operators_of_pages, short_name
from synth.papers import read_papers
from synth.plots import all_peers_plot
from synth.results import Measured, Record
from synth.svg import svg

PEERS_PLOT = ROOT / "docs" / "peers.svg"

_DEVICE = ("LUT", "FF", "DSP", "block RAM", "MHz, routed")
_RUN = ("tests", "values compared")
_MUTANTS = (
    "preset",
    "seed",
    "mutants",
    "killed",
    "timed out",
    "found by its operator's trial",
    "proven equal",
    "survived",
    "found, of non-equivalent",
)


def pages(catalog: Iterable[Any], figures: Figures, digests: Digests) -> dict[Path, dict[str, str]]:
    """Return every page's tables by name, as Markdown, with units in the catalog's order.

    Parameters
    ----------
    catalog : Iterable[hdl.entry.Entry]
        The units.
    figures : Figures
        The units' measured figures.
    digests : Digests
        The digests of their present Verilog, by which rows are marked.
    """
    entries = list(catalog)
    docs, costs = ROOT / "docs", figures["operators"].get("costs", {})
    shown = _Figures(figures, digests)
    return {
        docs / "units.md": {"units": _units(entries, shown)},
        docs / "peers.md": {"peers": _peers(costs)},
        comparison.PAGE: {
            **comparison.tables(comparison.kept()),
            **normalised.tables(comparison.kept()),
            **memory_runs.tables(comparison.kept()),
            **contexts.tables(comparison.kept()),
        },
        claims.PAGE: claims.tables(read_papers()),
        layouts.PAGE: {
            name: _table(*table)
            for name, table in layouts.tables(layouts.kept_layouts(), digests).items()
        },
        docs / "composed.md": composed.tables(comparison.kept()),
        **{
            docs / f"{page}.md": {"cost": _operators(units, costs)}
            for page, units in operators_of_pages().items()
        },
        docs / "figures.md": {
            **{
                name: _by_unit(entries, shown, name, _area_columns(name), _area)
                for name in LIBRARIES
            },
            **{name: _by_unit(entries, shown, name, _DEVICE, _device) for name in DEVICES},
            "netlists": _by_unit(entries, shown, "netlists", _RUN, _run),
            "mutants": _by_unit(entries, shown, "mutants", _MUTANTS, _mutants),
        },
    }


@dataclass(frozen=True)
class _Figures:
    """Figures, with the digests that identify figures of earlier Verilog."""

    figures: Figures
    digests: Digests

    def __getitem__(self, table: str) -> dict[str, Any]:
        """Return the figures of a table by unit."""
        return self.figures[table]

    def marked(self, title: str, table: str, top: str) -> str:
        """Return the title of a row, with a mark if the unit's figures are of earlier Verilog."""
        own = self.figures[table][top]
        old = is_old(top, form_of(table, own), own["verilog_digest"], self.digests)
        return f"{title} {MARK}" if old else title


def renewed(text: str, tables: dict[str, str], page: str) -> str:
    """Return a page with its tables replaced between their marks.

    Raises
    ------
    UserError
        If the page lacks a table's marks.
    """
    for name, table in tables.items():
        opening = f"<!-- {name}: written by `make report DOCS=1` -->"
        closing = f"<!-- end of {name} -->"
        pattern = re.escape(opening) + ".*?" + re.escape(closing)
        if not re.search(pattern, text, flags=re.S):
            raise UserError(f"{page} must have a line {opening!r} and a line {closing!r}")
        block = f"{opening}\n{table}\n{closing}"
        text = re.sub(pattern, lambda _, block=block: block, text, flags=re.S)
    return text


def write_documents(
    catalog: Iterable[Any], results: Iterable[Measured], operators: Record
) -> list[Path]:
    """Update `docs/figures.json`, the tables of every page and the plot; return the files."""
    figures = merged(kept_figures(), results, operators)
    laid_out = layouts.merged_layouts(layouts.kept_layouts(), BUILD)
    replace_text(layouts.LAYOUTS, layouts.layouts_text(laid_out))
    texts = {
        page: renewed(page.read_text(), tables, page.name)
        for page, tables in pages(catalog, figures, kept_digests()).items()
    }
    groups = compared_circuits(figures["operators"].get("costs", {}))
    plot = svg(all_peers_plot(groups), "Area and delay of circuits that do the same work")
    files = {FIGURES: figures_text(figures), PEERS_PLOT: plot, **texts}
    compared = comparison.kept()
    files[comparison.PLOT] = comparison.drawing(compared)
    files[rooflines.PLOT] = rooflines.drawing(compared)
    causes = {paper.name: paper.causes for paper in read_papers()}
    files[waterfall.PLOT] = waterfall.drawing(compared, causes)
    for file, text in files.items():
        replace_text(file, text)
    return list(files)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, and a legend if some of its rows have a mark."""
    head, *body = (f"| {' | '.join(line)} |" for line in (columns, *rows))
    table = "\n".join([head, "|---" * len(columns) + "|", *body])
    old = sum(MARK in line for line in body)
    legend = f"{MARK} The unit's Verilog has changed since this was measured: {old} of {len(body)}"
    return f"{table}\n\n{legend} {'row' if len(body) == 1 else 'rows'}." if old else table


def _units(entries: Sequence[Any], shown: _Figures) -> str:
    """Return the tables of units: of the common folders, and of each paper."""
    titles = {paper.name: paper.title for paper in read_papers()} | {"shell": "AXI shell"}
    compared = comparison.kept()["systems"]
    tables = []
    for floor, units in groupby(entries, key=lambda entry: entry.paper):
        title = f"[{titles[floor]}]({floor}/README.md)" if floor in titles else "For all papers"
        tables.append(f"**{title}**\n\n{_units_of(units, shown, compared)}")
    return "\n\n".join(tables)


def _units_of(entries: Iterable[Any], shown: _Figures, compared: dict[str, Any]) -> str:
    """Return the table of several units; large systems use the figures of the comparison.

    A system's netlist without a legal clock is in no cell (`synth.comparison.netlists`).
    """
    rows, measured = [], shown["nangate45"]

    def spread(*values: float) -> str:
        return " to ".join(f"{value:,.0f}" for value in values)

    for entry in entries:
        if entry.top in measured:
            figures = measured[entry.top]
            points = figures["points"][0], figures["points"][-1]
            area, clock = (spread(*(p[key] for p in points)) for key in ("area_um2", "fmax_mhz"))
            wired = [found for point in points if (found := wired_mhz(point))]
            words = [shown.marked(area, "nangate45", entry.top), clock]
            words.append(spread(*wired) if len(wired) == len(points) else "-")
            words.append(f"{figures['memory_bits']:,}")
        elif entry.top in compared:
            system = compared[entry.top]
            areas, clocks = zip(*comparison.netlists(system), strict=True)
            area = f"{spread(*areas)}, [as compared](comparison.md)"
            words = [area, spread(*clocks), "-", f"{system['figures']['memory_bits']:,}"]
        else:
            words = ["not measured", "", "", ""]
        contract = (text.replace("|", r"\|") for text in (entry.latency, entry.throughput))
        rows.append([_linked(entry), entry.summary, *contract, *words])
    columns = ["unit", "function", "latency", "throughput"]
    columns += ["um2", CLOCKS["nangate45"], WIRED_CLOCK, "memory bits"]
    return _table(columns, rows)


def _linked(entry: Any) -> str:
    """Return the name of a unit with a link to its page."""
    return f"[`{entry.top}`]({entry.files['docs'].relative_to('docs')})"


def _by_unit(
    entries: Sequence[Any],
    shown: _Figures,
    table: str,
    columns: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
) -> str:
    """Return a table with one row per measured unit."""
    measured = shown[table]
    rows = (
        [shown.marked(_linked(entry), table, entry.top), *cells(measured[entry.top])]
        for entry in entries
        if entry.top in measured
    )
    return _table(["unit", *columns], rows)


def _area_columns(library: str) -> list[str]:
    """Return the titles of the cells of `_area` for one of `LIBRARIES`."""
    clocks = CLOCKS[library], WIRED_CLOCK
    return ["memory bits", "flip-flops", "smallest, um2", *clocks, "fastest, um2", *clocks, "mW"]


def _area(figures: dict[str, Any]) -> list[str]:
    """Return the cells of `_area_columns`."""
    small, fast = figures["points"][0], figures["points"][-1]
    cells = [f"{figures['memory_bits']:,}", f"{figures['flops']:,}"]
    for point in (small, fast):
        wired = wired_mhz(point)
        cells += [f"{point['area_um2']:,.0f}", f"{point['fmax_mhz']:,.0f}"]
        cells.append(f"{wired:,.0f}" if wired else "-")
    return [*cells, f"{float(format(fast['power_mw'], '.3g')):,g}"]


def _device(figures: dict[str, Any]) -> list[str]:
    """Return the cells of `_DEVICE`."""
    counts = (f"{figures[kind]:,g}" for kind in ("lut", "ff", "dsp", "bram"))
    return [*counts, f"{figures['fmax_mhz']:,.0f}" if figures["fmax_mhz"] else "-"]


def _run(figures: dict[str, Any]) -> list[str]:
    """Return the cells of `_RUN`."""
    return [
        f"{figures['tests']}, {figures['failures']} failed",
        f"{figures['values_checked']:,}, {figures['mismatches']} differ",
    ]


def _mutants(figures: dict[str, Any]) -> list[str]:
    """Return the cells of `_MUTANTS`."""
    outcomes = figures["outcomes"]
    found = outcomes["killed"] + outcomes["timed out"] + outcomes["by its operator's trial"]
    different = found + outcomes["survived"]
    score = f"{found / different:.1%}".replace("%", " %") if different else "-"
    shown = ("killed", "timed out", "by its operator's trial", "equal", "survived")
    counts = (str(outcomes[outcome]) for outcome in shown)
    run = figures["preset"], str(figures["seed"]), str(sum(outcomes.values()))
    return [*run, *counts, score]


def _peers(costs: Costs) -> str:
    """Return the comparison table of circuits, numbered as in the plot."""
    rows = []
    for work, circuits in compared_circuits(costs).items():
        for number, circuit in enumerate(circuits, 1):
            shown = f"**{circuit.name}**" if circuit.ours else circuit.name
            for recipe, area, delay in circuit.points:
                rows.append([work, str(number), shown, recipe, f"{area:,.0f}", f"{delay:,.0f}"])
                work = ""
    return _table(
        ["function", "number in the plot", "circuit", "mapped for", "um2", "ABC, ps"], rows
    )


def _operators(units: Sequence[str], costs: Costs) -> str:
    """Return the table of operators of one page."""
    rows = []
    for unit in units:
        recipes = costs.get(unit, [])
        cells = [f"{item['area_um2']:,.0f}, {item['mapper_delay_ps']:,.0f} ps" for item in recipes]
        fastest = recipes[-1] if recipes else {"sequential_um2": 0, "critical_path_ps": None}
        flops, path = fastest["sequential_um2"], fastest["critical_path_ps"]
        last = [f"{flops:,.0f}", f"{path:,.0f} ps"] if flops and path else ["", ""]
        rows.append([f"`{short_name(unit)}`", *cells, *last])
    columns = ["operator", "plain", "area", "speed", "of it flip-flops", "OpenSTA"]
    return _table(columns, rows)
