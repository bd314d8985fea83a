"""The verb ``layout``."""

from pathlib import Path

import click
from rich.table import Table

from systola.options import Chosen, UserPath, console, path_shown, unit_options


@click.command()
@unit_options()
@click.option("--liberty", help="Cell library, .lib or .lib.gz; needs LEF.")
@click.option("--lef", type=UserPath(), help="LEF file of the cells of LIBERTY.")
@click.option("--density", type=float, default=0.7, help="Share of the core for cells.")
@click.option("--period", type=float, help="Clock period in picoseconds for the mapping.")
@click.option("--limit", type=int, help="Maximum number of cells; 6000 if absent.")
def layout(
    unit: Chosen,
    liberty: str | None,
    lef: Path | None,
    density: float,
    period: float | None,
    limit: int | None,
) -> None:
    """Place and route a small unit, check it, and measure its clock with wires."""
    from synth.asic import check_period
    from synth.layout.flow import CELL_LIMIT, check_density, check_limit, find_lef
    from synth.layout.units import lay_out_unit
    from synth.liberty import find_library
    from synth.timing import MISSING

    check_period(period)
    check_density(density)
    limit = CELL_LIMIT if limit is None else limit
    check_limit(limit)
    geometry = find_lef(liberty, lef)
    with console.status("reading the cell library") as status:
        library = find_library(liberty)
        result = lay_out_unit(
            unit.entry,
            unit.dimensions,
            unit.home,
            library=library,
            lef=geometry,
            density=density,
            period_ps=period,
            limit=limit,
            progress=lambda words: status.update(f"{unit.title}: {words}"),
        )
    figures = result.figures
    table = Table("quantity", "value", title=f"{unit.title}\n{library.name}, {library.corner}")
    width, height = figures["core_um"]
    rows = {
        "cells": f"{figures['cells']:,}",
        "clock buffers, levels": f"{figures['clock_buffers']:,}, {figures['clock_levels']}",
        "core, um": f"{width:,.1f} x {height:,.1f}",
        "utilisation": f"{figures['utilisation']:.1%}",
        "wire, um": f"{figures['wire_um']:,.0f}",
        "wire per load, um": f"{figures['um_per_load'] or 0:.1f}",
    }
    if result.wireless and result.wired:
        for words, timing in (
            ("without wires, ideal clock", result.wireless),
            ("with wires and clock tree", result.wired),
        ):
            if timing.fmax_mhz:
                rows[f"fmax {words}, MHz"] = f"{timing.fmax_mhz:,.0f}"
        rows["clock latency, ps"] = f"{result.wired.latency_ps:,.0f}"
        if result.wired.hold_slack_ps is not None:
            rows["hold slack between registers, ps"] = f"{result.wired.hold_slack_ps:,.0f}"
    if result.checks:
        rows["DRC errors"] = f"{result.checks.drc_errors:,}"
        rows["LVS"] = result.checks.lvs.rstrip(".")
        if not result.checks.matches:
            rows["LVS differences"] = f"{result.checks.lvs_differences:,}"
    for stage, seconds in result.seconds.items():
        rows[f"{stage}, processor s"] = f"{seconds:.1f}"
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    for name, ports in figures["cut"].items():
        console.print(f"{name} is not in the layout: {len(ports)} ports or pins replace it")
    if not result.wired:
        console.print(MISSING)
    if result.checks:
        for rule, places in result.checks.drc.items():
            console.print(f"DRC: {places:,} places violate '{rule}'")
    else:
        console.print(f"not checked: {result.unchecked}")
    console.print(f"wrote {path_shown(result.file)}")


COMMANDS: tuple[click.Command, ...] = (layout,)
"""What `systola.cli` adds to its own verbs."""
