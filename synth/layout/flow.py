"""The verb ``layout``: from a mapped netlist to a routed DEF, SPEF and timing with wires.

A stage whose inputs have not changed is not repeated: placement and routing, which take the most
time, store a key of their inputs next to their result.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from hdl.paths import replace_text
from synth.debian import opensta, osu018
from synth.layout.calibration import model_clock
from synth.layout.checker import find_checker
from synth.layout.checks import Checks, check, check_inputs, read_checks
from synth.layout.clock import build_clock_tree
from synth.layout.design_exchange import (
    Floorplan,
    Route,
    make_floorplan,
    read_routes,
    with_routes,
    write_placed,
)
from synth.layout.extraction import Parasitics, extract, pin_boxes, write_spef
from synth.layout.lef import NM, Lef, read_lef
from synth.layout.mending import mend
from synth.layout.netlist import LayoutNetlist, read_netlist
from synth.layout.picture import Die, draw_die
from synth.layout.placement import Placement, place, read_places, write_cells
from synth.layout.power import PowerGrid, plan_power
from synth.layout.routing import route, route_script
from synth.layout.timing import LayoutTiming, analyse_layout
from synth.layout.tools import find_placer, find_router
from synth.mapped_design import Netlist

CELL_LIMIT = 6000
"""Default maximum number of cells. qrouter's time grows faster than linearly, from 13 s at 1,300
cells to 200 s at 6,100 cells. It repeats the routes (`route_script`) of at most so many cells."""

RESULTS = "checks.json"
"""File of the results of DRC and LVS."""

DENSITIES = (0.3, 0.9)
"""Minimum and maximum density; above, the rows lack space for the clock tree and the router."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The results of a layout.

    Parameters
    ----------
    design : LayoutNetlist
        The netlist with the clock tree.
    placement : Placement
        The places of all cells.
    power : PowerGrid
        Fillers, straps and their vias.
    routes : dict[str, Route]
        The routes of the nets with at least two pins.
    wireless, wired : LayoutTiming or None
        Timing without wires and with an ideal clock, and with both; None without OpenSTA.
    checks : Checks or None
        DRC and LVS; None if they could not be made.
    unchecked : str
        The reason for missing checks.
    seconds : dict[str, float]
        Processor time of each stage, in this run or in the earlier one that made its result.
    die : Die
        What a picture shows.
    file : Path
        ``layout.json``.
    figures : dict[str, Any]
        Contents of the file.
    """

    design: LayoutNetlist
    placement: Placement
    power: PowerGrid
    routes: dict[str, Route]
    wireless: LayoutTiming | None
    wired: LayoutTiming | None
    checks: Checks | None
    unchecked: str
    seconds: dict[str, float]
    die: Die
    file: Path
    figures: dict[str, Any]


def find_lef(liberty: str | None, lef: Path | None) -> Lef:
    """Return the LEF file of a library.

    Raises
    ------
    UserError
        If only one of both files is given, or neither is given and OSU018 is missing.
    """
    if liberty and not lef:
        raise UserError("LEF must name the LEF file of the library that LIBERTY names")
    if lef and not liberty:
        raise UserError("LIBERTY must name the liberty file of the cells in LEF")
    if lef:
        return read_lef(lef)
    default = osu018()
    if not default:
        raise UserError(
            "layout needs Debian's package qflow-tech-osu018, or LIBERTY and LEF of another library"
        )
    return read_lef(default.with_suffix(".lef"))


def check_density(density: float) -> None:
    """Check the density.

    Raises
    ------
    UserError
        If it is outside `DENSITIES`.
    """
    low, high = DENSITIES
    if not low <= density <= high:
        raise UserError(f"DENSITY must be between {low:g} and {high:g}, not {density:g}")


def check_limit(limit: int) -> None:
    """Check the maximum number of cells.

    Raises
    ------
    UserError
        If it is not positive.
    """
    if limit < 1:
        raise UserError(f"LIMIT must be at least 1 cell, not {limit}")


def lay_out(
    netlist: Netlist,
    lef: Lef,
    directory: Path,
    *,
    density: float,
    facts: dict[str, Any],
    limit: int = CELL_LIMIT,
    progress: Callable[[str], None] = lambda _: None,
) -> Layout:
    """Place and route a netlist, measure its timing and write ``layout.json``.

    Parameters
    ----------
    netlist : Netlist
        The mapped design.
    lef : Lef
        Geometry of the cells and layers.
    directory : Path
        Folder of the files.
    density : float
        Share of the core's area that the cells may take.
    facts : dict[str, Any]
        Entries of ``layout.json`` about the origin of the netlist.
    limit : int, optional
        Maximum number of cells.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        If a program is missing, the design is too large, or a stage fails.
    """
    check_density(density)
    check_limit(limit)
    if netlist.cells > limit:
        raise UserError(
            f"layout takes at most {limit} cells, but {netlist.top} has {netlist.cells}: the "
            "router's time grows faster than the number of cells; LIMIT sets another maximum"
        )
    if not netlist.cells:
        raise UserError(f"layout needs a netlist with cells, but {netlist.top} has none")
    placer, router = find_placer(), find_router()
    design = read_netlist(netlist)
    for cell in design.cells.values():
        lef.macro(cell.kind)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "layout.json"
    file.unlink(missing_ok=True)
    work = directory / "place"
    work.mkdir(exist_ok=True)
    places = work / f"{design.top}.pl1"
    key = _key(write_cells(design, lef, density, work).read_text(), placer.parameters)
    if not _is_done(places, key):
        progress(f"placing {len(design.cells):,} cells")
        # Graywolf would continue from the files of an interrupted run.
        shutil.rmtree(work)
        work.mkdir()
        write_cells(design, lef, density, work)
        started = _processor_seconds()
        place(design, placer, work)
        _done(places, key, started)
    placement = read_places(design, lef, places)
    logic = len(design.cells)
    levels = build_clock_tree(design, placement, lef)
    plan = make_floorplan(placement, lef)
    power = plan_power(design, placement, plan.origin, plan.die, lef)

    cleanup = logic <= CELL_LIMIT
    script = route_script(router, lef, cleanup=cleanup)
    placed = write_placed(design, placement, plan, power, lef)
    replace_text(directory / "placed.def", placed)
    key = _key(placed, script, lef.path.read_text(errors="replace"))
    routed = directory / "routed.def"
    if not _is_done(routed, key):
        started = _processor_seconds()
        route(router, script, directory, progress)
        _done(routed, key, started)

    progress("mending and extraction")
    routes = read_routes(routed)
    mended = sorted(mend(design, placement, plan, power, lef, routes))
    final = directory / f"{design.top}.def"
    changed = {net: routes[net] for net in mended}
    replace_text(final, with_routes(routed.read_text(), changed, lef))
    routes = {net: found for net, found in read_routes(final).items() if len(found.pins) > 1}
    parasitics = extract_all(design, placement, plan, lef, routes)
    verilog, spef = directory / f"{design.top}.v", directory / f"{design.top}.spef"
    replace_text(verilog, design.verilog())
    replace_text(spef, write_spef(design, parasitics))
    progress("picture")
    die = Die(design=design, placement=placement, plan=plan, power=power, routes=routes, lef=lef)
    draw_die(die, directory / "die.png")
    progress("timing")
    wireless, wired = _timing(design, verilog, spef)
    progress("timing with the wire load model")
    model = model_clock(netlist)
    checks, unchecked = None, ""
    try:
        checks = _check(design, power, lef, directory, progress)
    except UserError as error:
        unchecked = str(error)
    stages = {"placement": places, "routing": routed}
    stages |= {"checks": directory / RESULTS} if checks else {}
    seconds = {stage: _seconds(result) for stage, result in stages.items()}
    figures = facts | {
        "density": density,
        "cells": logic,
        "clock_buffers": len(design.cells) - logic,
        "clock_levels": levels,
        "clock_sinks": netlist.flops,
        "fillers": len(power.fillers),
        "routes_repeated": cleanup,
        "mended": mended,
        "straps": {net.name: len(net.straps) for net in power.nets},
        **_geometry(design, placement, plan, routes),
        "cut": design.cut,
        "aliases": design.aliases,
        "wireless": _figures(wireless),
        "wired": _figures(wired),
        "model": model,
        "checks": checks and checks.figures(),
        "processor_seconds": seconds,
    }
    replace_text(file, json.dumps(figures, indent=1) + "\n")
    return Layout(
        design=design,
        placement=placement,
        power=power,
        routes=routes,
        wireless=wireless,
        wired=wired,
        checks=checks,
        unchecked=unchecked,
        seconds=seconds,
        die=die,
        file=file,
        figures=figures,
    )


def extract_all(
    design: LayoutNetlist,
    placement: Placement,
    plan: Floorplan,
    lef: Lef,
    routes: dict[str, Route],
) -> dict[str, Parasitics]:
    """Return the parasitics of all nets.

    Raises
    ------
    UserError
        If the routed DEF has other nets or pins than the netlist, or an open net.
    """
    nets = {net: pins for net, pins in design.pins().items() if len(pins) > 1}
    for net in nets.keys() | routes.keys():
        if sorted(nets.get(net, [])) != sorted(routes[net].pins if net in routes else []):
            raise UserError(f"net {net} of the routed DEF must have the pins of the netlist")
    found: dict[str, Parasitics] = {}
    for net, pins in nets.items():
        boxes = {pin: pin_boxes(design, placement, plan, lef, pin) for pin in pins}
        found[net] = extract(routes[net], boxes, lef, net)
    return found


def _check(
    design: LayoutNetlist,
    power: PowerGrid,
    lef: Lef,
    directory: Path,
    progress: Callable[[str], None],
) -> Checks:
    """Return the results of DRC and LVS, from an earlier run of the same routed design if any.

    Raises
    ------
    UserError
        If a program is missing or fails, or Magic's technology of the library is not known.
    """
    checker = find_checker()
    inputs = check_inputs(checker, design, power, lef)
    routed, results = directory / f"{design.top}.def", directory / RESULTS
    key = _key(routed.read_text(), lef.path.read_text(errors="replace"), *inputs)
    if not _is_done(results, key) or not (directory / f"{design.top}.gds").exists():
        progress("DRC, LVS and GDS")
        started = _processor_seconds()
        check(checker, inputs, design.top, directory).write(results)
        _done(results, key, started)
    return read_checks(results)


def _timing(
    design: LayoutNetlist, verilog: Path, spef: Path
) -> tuple[LayoutTiming | None, LayoutTiming | None]:
    """Return the timing without and with wires, or None twice without OpenSTA."""
    program = opensta()
    if not program:
        return None, None
    libraries, ports = [design.library.path], set(design.ports)
    return (
        analyse_layout(program, libraries, verilog, design.top, ports),
        analyse_layout(program, libraries, verilog, design.top, ports, spef=spef),
    )


def _geometry(
    design: LayoutNetlist, placement: Placement, plan: Floorplan, routes: dict[str, Route]
) -> dict[str, Any]:
    """Return areas, lengths and the calibration of the wire load model."""
    area = sum(design.library.cells[cell.kind].area for cell in design.cells.values())
    core = placement.width * placement.height / NM**2
    left, bottom, right, top = plan.die
    clock = {net for net in routes if net.startswith("clock_") or net == "clk"}
    signals = {net: found for net, found in routes.items() if net not in clock}
    length = sum(found.length_um for found in signals.values())
    loads = sum(len(found.pins) - 1 for found in signals.values())
    pitch = (core / len(design.cells)) ** 0.5
    return {
        "cell_area_um2": round(area, 1),
        "core_um": [placement.width / NM, placement.height / NM],
        "die_um": [(right - left) / NM, (top - bottom) / NM],
        "utilisation": round(area / core, 4),
        "nets": len(routes),
        "wire_um": round(sum(found.length_um for found in routes.values()), 1),
        "clock_wire_um": round(sum(routes[net].length_um for net in clock), 1),
        "vias": sum(len(found.vias) for found in routes.values()),
        "um_per_load": round(length / loads, 3) if loads else None,
        "pitches_per_load": round(length / loads / pitch, 3) if loads else None,
    }


def _figures(timing: LayoutTiming | None) -> dict[str, Any] | None:
    """Return the figures of a timing."""
    if not timing:
        return None
    fmax = timing.fmax_mhz
    return asdict(timing) | {"fmax_mhz": round(fmax, 2) if fmax else None}


def _key(*texts: str) -> str:
    """Return a digest of a stage's inputs."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _is_done(result: Path, key: str) -> bool:
    """Return whether a stage's result belongs to its present inputs and is unchanged."""
    note = result.with_name(f"{result.name}.key")
    if not result.exists() or not note.exists():
        return False
    noted = note.read_text().split()
    return len(noted) == 3 and noted[:2] == [key, _key(result.read_text(errors="replace"))]


def _done(result: Path, key: str, started: float) -> None:
    """Note the inputs, the content and the processor time of a stage's result."""
    note = result.with_name(f"{result.name}.key")
    spent = _processor_seconds() - started
    replace_text(note, f"{key} {_key(result.read_text(errors='replace'))} {spent:.1f}\n")


def _seconds(result: Path) -> float:
    """Return the processor time of a stage that is done."""
    return float(result.with_name(f"{result.name}.key").read_text().split()[2])


def _processor_seconds() -> float:
    """Return the processor time of all programs that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system
