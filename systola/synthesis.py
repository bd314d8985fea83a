"""The verbs that map units, pack boards, export, and report figures."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hdl.paths import BUILD
from hdl.target import Target, find_target
from systola import environment
from systola.options import (
    Chosen,
    UserPath,
    console,
    name_option,
    out_option,
    path_shown,
    unit_options,
)

OPERATORS = "operators.json"
"""File in the build directory to which `operators` writes its measurements."""

FLAT = {"1": "flat", "parts": "parts", "0": "hierarchy"}
"""Forms of the netlist by option value; without the option, small designs are flat."""

period_option = click.option("--period", type=float, help="Clock period in picoseconds.")


@click.command()
@unit_options()
@click.option("--liberty", help="Cell library, .lib or .lib.gz; a colon separates several files.")
@period_option
@click.option("--vcd", type=UserPath(), help="Simulation, for switching activity.")
@click.option("--flat", type=click.Choice(list(FLAT)), help="1 flattens all modules, 0 none.")
@click.option("--wires", type=bool, default=False, help="1 adds a clock with wires, by area.")
def synth(
    unit: Chosen,
    liberty: str | None,
    period: float | None,
    vcd: Path | None,
    flat: str | None,
    wires: bool,
) -> None:
    """Map a unit to a cell library: area, timing, power, and a netlist for simulation."""
    from hdl.emitted import emit_unit
    from synth.asic import check_period
    from synth.liberty import find_library
    from synth.netlist import netlist_sources
    from synth.replay import activity_of
    from synth.synthesis import measure_design
    from synth.waveforms import read_waveforms

    check_period(period)
    with console.status("reading the cell library") as status:
        # Read the inputs first, so that a wrong library or waveform is reported immediately.
        library = find_library(liberty)
        recorded = read_waveforms(vcd, unit.top) if vcd else None
        # With `sources`, the report of the longest path refers to lines of Python.
        result = measure_design(
            emit_unit(unit.entry, unit.dimensions, sources=True).verilog,
            unit.top,
            library,
            unit.home,
            preset=unit.preset,
            period_ps=period,
            form=FLAT[flat] if flat else None,
            wires=wires,
            activity=lambda netlist: activity_of(recorded, netlist) if recorded else None,
            progress=lambda words: status.update(f"{unit.title}: {words}"),
        )
        netlist = netlist_sources(result.headline.netlist, unit.home / "netlist")
    _print_synthesis(result)
    _wrote(result.file, *netlist)


@click.command()
@unit_options()
@click.option("--vcd", type=UserPath(), required=True, help="Simulation.")
@click.option("--liberty", help="Cell library of the netlists; Debian's OSU018 if absent.")
def power(unit: Chosen, vcd: Path, liberty: str | None) -> None:
    """Measure the power of the netlists that synth wrote, with the activity of a simulation."""
    from hdl.emitted import emit_unit
    from synth.liberty import find_library
    from synth.power import measure_power

    with console.status("reading the cell library") as status:
        library = find_library(liberty)
        result = measure_power(
            emit_unit(unit.entry, unit.dimensions, sources=True).verilog,
            unit.top,
            library,
            unit.home,
            vcd,
            preset=unit.preset,
            progress=lambda words: status.update(f"{unit.title}: {words}"),
        )
    table = Table("quantity", title=f"{unit.title}\n{library.name}, {library.corner}")
    for point in result.points:
        table.add_column(point.recipe, justify="right")
    rows = {
        "clock, MHz": "frequency_mhz",
        "switching, mW": "dynamic_mw",
        "leakage, mW": "leakage_mw",
        "switching, pJ/cycle": "dynamic_pj",
        "leakage, pJ/cycle": "leakage_pj",
    }
    for words, key in rows.items():
        table.add_row(words, *(f"{getattr(point, key):,.3f}" for point in result.points))
    console.print(table)
    console.print(f"logic only, SRAM excluded; {result.points[0].activity}")
    _wrote(result.file)


@click.command()
@unit_options()
@click.option("--device", default="ecp5-85k", help="ecp5-85k, ecp5-45k or xcup.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, help="Seed of the placer.")
def fpga(unit: Chosen, device: str, seed: int) -> None:
    """Map a unit to an FPGA; place and route it if the device has open-source tools."""
    environment.require("fpga")
    from hdl.emitted import emit_unit
    from synth.fpga import find_device, place_and_route

    chosen_device = find_device(device)
    emitted = emit_unit(unit.entry, unit.dimensions, Target.FPGA)
    with console.status(f"mapping {unit.top} to {chosen_device.title}") as status:
        result = place_and_route(
            emitted.verilog,
            unit.top,
            emitted.ports,
            chosen_device,
            unit.home,
            preset=unit.preset,
            seed=seed,
            progress=lambda words: status.update(f"{unit.title}: {words}"),
        )
    table = Table("resource", "used", "of", "share", title=f"{unit.title}, {chosen_device.title}")
    for kind, used in result.counts.items():
        available = getattr(chosen_device, kind)
        table.add_row(kind.upper(), f"{used:g}", str(available), f"{used / available:.2%}")
    fmax = f"{result.fmax_mhz:.1f} MHz" if result.fmax_mhz else "not placed and routed"
    table.add_row("fmax", fmax, "", "")
    console.print(table)
    _wrote(result.file)


@click.command()
@unit_options("tiny")
@click.option("--board", default="ulx3s", help="Board: ulx3s.")
@click.option("--memory", default="block", help="block for block RAM, or sdram.")
@click.option("--memory-bytes", type=int, help="Bytes of memory; 65536, or all of the SDRAM.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, help="Seed of the placer.")
def bitstream(unit: Chosen, board: str, memory: str, memory_bytes: int | None, seed: int) -> None:
    """Pack an accelerator with the AXI shell, a memory and a serial host for a board."""
    environment.require("fpga", *(["sdram"] if memory == "sdram" else []))
    from synth.bitstream import board_parameters, build_bitstream, emit_board, find_board

    chosen_board = find_board(board)
    sizes = {} if memory_bytes is None else {"memory_bytes": memory_bytes}
    parameters = board_parameters(unit.top, unit.parameters, memory, **sizes)
    # Each memory has its own results.
    place = board if memory == "block" else f"{board}_{memory}"
    name, directory = f"{unit.top}_{place}", unit.home / place
    with console.status(f"emitting {unit.title}") as status:
        result = build_bitstream(
            emit_board(parameters, name, directory, chosen_board.clock_mhz),
            name,
            chosen_board,
            directory,
            about={"top": unit.top, "preset": unit.preset, "parameters": repr(parameters)},
            seed=seed,
            progress=lambda words: status.update(f"{unit.title}: {words}"),
        )
    table = Table("resource", "used", "of", "share", title=f"{unit.title}, {chosen_board.title}")
    for kind, used in result.counts.items():
        available = getattr(chosen_board.device, kind)
        table.add_row(kind.upper(), f"{used:g}", str(available), f"{used / available:.2%}")
    table.add_row("fmax, MHz", f"{result.fmax_mhz:.1f}", f"{chosen_board.clock_mhz:g}", "")
    table.add_row("bitstream, bytes", f"{result.file.stat().st_size:,}", "", "")
    console.print(table)
    _wrote(result.file, result.figures)


@click.command()
@unit_options()
@click.option("--for", "for_", required=True, help="orfs, librelane, vivado, fusesoc or litex.")
@period_option
@out_option("build/<top>/<preset>/export/<for>")
@click.option("--target", default=None, help="asic or fpga; fpga for Vivado, else asic.")
@name_option("<top>_<preset>")
@click.option(
    "--macros",
    help="TOML list of memory macros, such as fakeram45.toml; for orfs and librelane.",
)
def export(
    unit: Chosen,
    for_: str,
    period: float | None,
    out: Path | None,
    target: str | None,
    name: str | None,
    macros: str | None,
) -> None:
    """Write a unit as a project for another flow."""
    from hdl.emitted import emit_unit
    from synth.asic import check_period
    from synth.export import (
        DEFAULT_PERIOD_PS,
        TARGETS,
        Design,
        check_flow,
        check_macros,
        large_memories,
        write_export,
    )
    from synth.macros.macro_list import find_macro_list
    from synth.macros.mapping import COLUMNS, manifest_counts, map_memories

    check_period(period)
    check_flow(for_)
    if macros is not None:
        check_macros(for_)
    macro_list = None if macros is None else find_macro_list(macros)
    wanted = find_target(target) if target else TARGETS.get(for_, Target.ASIC)
    # One design may contain two configurations of a unit, so the default name is unique to both.
    name = name or unit.configured_name
    emitted = emit_unit(unit.entry, unit.dimensions, wanted, name=name)
    mapping = macro_list and map_memories(
        emitted.modules,
        macro_list,
        counts=manifest_counts(emitted.verilog[-1].with_name(f"{name}.json")),
        target=wanted,
    )
    design = Design(
        top=name,
        summary=unit.entry.summary,
        verilog=emitted.verilog,
        ports=emitted.ports,
        memories=emitted.memories,
        documents=emitted.documents,
        mapping=mapping,
        target=wanted,
        period_ps=DEFAULT_PERIOD_PS if period is None else period,
    )
    written = write_export(design, for_, out or unit.home / "export" / for_)
    table = Table("file", "bytes", title=f"{unit.title} for {for_}")
    for path in written:
        table.add_row(str(path.relative_to(written[-1].parent)), str(path.stat().st_size))
    console.print(table)
    if mapping:
        table = Table(*COLUMNS, title=f"memories, macros of {mapping.macros.name}")
        for memory in mapping.memories:
            table.add_row(*memory.row)
        console.print(table)
        console.print(mapping.summary)
    if large := large_memories(design, for_):
        table = Table("memory too large for the flow", "bits")
        for memory in large:
            table.add_row(memory.name, str(memory.bits))
        console.print(table)
    _wrote(written[-1])


@click.command()
@click.option("--docs", type=bool, default=False, help="1 updates the tables of README and docs.")
def report(docs: bool) -> None:
    """Write one page with all measurements of the build directory and of docs/."""
    environment.require("synth")
    from hdl.catalog import CATALOG
    from synth.documents import write_documents
    from synth.figures import kept_figures
    from synth.report import write_report
    from synth.results import Record, collect, collect_studies, collect_sweeps

    results, operators = collect(BUILD), Record.read(BUILD / OPERATORS)
    written = write_report(
        CATALOG,
        results,
        operators,
        BUILD / "report",
        figures=kept_figures(),
        studies=collect_studies(BUILD),
        sweeps=collect_sweeps(BUILD),
    )
    if docs:
        written += write_documents(CATALOG, results, operators)
    table = Table("unit", "simulated", "netlist", "synthesised", "on FPGA", title="report")
    for result in results:
        kinds = (result.sim.values, result.netlist_sim.values, result.synth, result.fpga.values)
        table.add_row(result.name, *("yes" if kind else "-" for kind in kinds))
    console.print(table)
    _wrote(*written)


@click.command()
@click.option("--liberty", required=True, help="NanGate45, .lib or .lib.gz.")
def operators(liberty: str) -> None:
    """Measure the arithmetic operators by the method of the published circuits."""
    from synth.liberty import find_library
    from synth.operators import measure_operators, short_name

    with console.status("reading the library") as status:
        results = measure_operators(
            find_library(liberty), BUILD / OPERATORS, progress=status.update
        )
    title = f"{results['liberty']}, {results['corner']}"
    table = Table("circuit", "recipe", "um2", "ps", title=title)
    for unit, recipes in results["costs"].items():
        for item in recipes:
            figures = f"{item['area_um2']:,.0f}", f"{item['mapper_delay_ps']:,.0f}"
            table.add_row(short_name(unit), item["recipe"], *figures)
    console.print(table)
    _wrote(BUILD / OPERATORS)


@click.command()
@click.option("--top", help="One unit; all if absent.")
def digests(top: str | None) -> None:
    """Update docs/digests.json, by which pages mark figures of Verilog that has changed since."""
    from hdl.catalog import CATALOG, entry_named
    from synth.digests import DIGESTS, renew
    from synth.figures import kept_figures

    with console.status("comparing sources") as status:
        entries = [entry_named(top)] if top else CATALOG
        changed = renew(entries, kept_figures(), lambda words: status.update(f"emitting {words}"))
    table = Table("Verilog that changed", title="digests")
    for name in changed:
        table.add_row(name)
    console.print(table if changed else "no unit's Verilog has changed")
    _wrote(DIGESTS)


COMMANDS: tuple[click.Command, ...] = (
    synth,
    power,
    fpga,
    bitstream,
    export,
    operators,
    report,
    digests,
)
"""What `systola.cli` adds to its own verbs."""


def _print_synthesis(result: Any) -> None:
    """Print the figures of a synthesis."""
    from synth.timing import MISSING
    from synth.wires import default_wire_load

    library = result.library
    title = f"{result.top} / {result.preset}\n{library.name}, {library.corner}; {library.origin}"
    table = Table(title=title, title_justify="left")
    table.add_column("quantity")
    for point in result.points:
        table.add_column(point.netlist.recipe, justify="right")
    default = "default wire load" if default_wire_load(library) else "no wire load"
    rows: dict[str, list[str]] = {}
    for point in result.points:
        netlist, timing = point.netlist, point.timing
        scale = "um2" if library.timed else "NAND2"
        figures = {
            f"area, {scale}": f"{netlist.area_um2:,.0f}",
            f"flip-flop area, {scale}": f"{netlist.sequential_um2:,.0f}",
            "NAND2 equivalents": f"{netlist.area_um2 / library.nand2_area:,.0f}",
            "cells": f"{netlist.cells:,}",
            "flip-flops": f"{netlist.flops:,}",
            "memory bits, not in the area": f"{netlist.memory_bits:,}",
        }
        if timing and timing.critical:
            figures[f"fmax, MHz; {default}"] = f"{timing.fmax_mhz:,.0f}"
            if point.wired and point.wired.fmax_mhz and point.wires:
                figures["fmax with wires by area, MHz"] = f"{point.wired.fmax_mhz:,.0f}"
                figures["wire per load, um"] = f"{point.wires.um_per_load:.1f}"
            figures["longest path, ps"] = f"{timing.critical.length_ps:,.0f}"
            if result.period_ps:
                slack = min(path.slack_ps for path in timing.paths)
                figures[f"slack at {result.period_ps:g} ps"] = f"{slack:,.0f}"
            if timing.power:
                figures["power, mW"] = f"{timing.power.total_mw:.3g}"
                figures["at MHz"] = f"{timing.power.frequency_mhz:,.0f}"
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)
    for name, values in rows.items():
        table.add_row(name, *values)
    console.print(table)
    critical = result.headline.timing.critical if result.headline.timing else None
    if critical:
        path = Table("ps", "cell", "name", "source", title=f"longest path, {critical.kind}")
        for step in critical.steps:
            path.add_row(f"{step.time_ps:.0f}", step.cell, step.name, step.source)
        console.print(path)
    if not library.timed:
        console.print("Areas are estimates without timing, because no cell library was found.")
    elif not result.headline.timing:
        console.print(MISSING)


def _wrote(*paths: Path) -> None:
    """Print the paths of written files."""
    for path in paths:
        console.print(f"wrote {path_shown(path)}")
