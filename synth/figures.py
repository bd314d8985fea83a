"""The stored figures of all units in `docs/figures.json`.

The file contains the figures for the pages of `docs/`, and replaces results that a build directory
lacks.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hdl.paths import ROOT
from synth.json_rows import json_rows
from synth.papers import divided, read_papers
from synth.results import Measured, Record

FIGURES = ROOT / "docs" / "figures.json"

DEVICES = ("ecp5-85k", "xcup")
"""Tables of FPGA devices."""

LIBRARIES = {"nangate45": "NangateOpenCellLibrary", "osu018": "osu018_stdcells"}
"""Tables of areas by the library's name in its liberty file."""

CLOCKS = {"nangate45": "MHz, default wire load", "osu018": "MHz, without wires"}
"""Title of the clocks of each library, with their wire load; OSU018 has no default wire load."""

WIRED_CLOCK = "MHz, modelled wires"
"""Title of the clocks that `make synth WIRES=1` adds."""

PRESET, NETLIST_PRESET = "smollm2", "tiny"
"""Preset for the areas on pages, and preset for simulations of netlists and mutants."""

_FPGA = ("title", "verilog_digest", "lut", "ff", "dsp", "bram", "fmax_mhz", "method", "tools")
_SYNTH = (
    "top", "preset", "liberty", "corner", "tools", "verilog_digest", "memory_bits", "flops",
)  # fmt: skip
_POINT = ("recipe", "area_um2", "nand2_equivalents", "fmax_mhz", "power_mw")
_WIRED = ("um_per_load", "fmax_mhz")
_NETLIST = (
    "top", "preset", "liberty", "simulator", "seed", "verilog_digest", "tests", "failures",
    "values_checked", "mismatches",
)  # fmt: skip
_MUTANTS = ("top", "preset", "seed", "verilog_digest", "outcomes")
_SIMULATION = (*_NETLIST, "cycles", "ideal_cycles", "utilization", "tensors")

Figures = dict[str, dict[str, Any]]
"""By table and unit: `LIBRARIES` and `DEVICES` of synthesis, ``simulations`` of the RTL,
``netlists`` of netlists, ``mutants`` of mutants.

``operators`` is what `synth.operators.measure_operators` wrote, whole.
"""


def kept_figures() -> Figures:
    """Return the contents of `docs/figures.json`."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def figures_text(figures: Figures) -> str:
    """Return the text of `docs/figures.json`: one line per unit or operator, all names sorted."""
    tables = dict(sorted((name, dict(sorted(table.items()))) for name, table in figures.items()))
    operators = tables.get("operators", {})
    if "costs" in operators:
        operators["costs"] = dict(sorted(operators["costs"].items()))
    rows = (
        f" {json.dumps(name)}: {json_rows(table, 2 if table is operators else 1, margin=' ')}"
        for name, table in tables.items()
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


def merged(figures: Figures, results: Iterable[Measured], operators: Record) -> Figures:
    """Return the figures, updated with new results."""
    names = (*LIBRARIES, *DEVICES, "simulations", "netlists", "mutants")
    tables = {name: dict(figures.get(name, {})) for name in names}
    of_library = {library: name for name, library in LIBRARIES.items()}
    for result in results:
        for record in result.synth:
            name = of_library.get(record.values["liberty"])
            if name and result.preset == PRESET and (kept := _synthesis(record.values)):
                tables[name][result.top] = kept
        for name, values in result.fpga.values.get("devices", {}).items():
            if name in DEVICES and result.preset == PRESET:
                kept = {key: values[key] for key in _FPGA}
                tables[name][result.top] = {"top": result.top, "preset": result.preset} | kept
        netlist, simulation = result.netlist_sim.values, result.sim.values
        if netlist and result.preset == NETLIST_PRESET:
            tables["netlists"][result.top] = {key: netlist[key] for key in _NETLIST}
        if result.mutants.values and result.preset == NETLIST_PRESET:
            mutants = result.mutants.values
            tables["mutants"][result.top] = {key: mutants[key] for key in _MUTANTS}
        if simulation.get("passed") and result.preset == PRESET:
            tables["simulations"][result.top] = {key: simulation[key] for key in _SIMULATION}
    tables["operators"] = operators.values or figures.get("operators", {})
    return {name: dict(sorted(table.items())) for name, table in tables.items()}


def _synthesis(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the stored part of a ``synth.json``; None if a figure for the pages is missing."""
    points = [_point(point) for point in values["points"]]
    # Without OpenSTA there are only areas, and with a period there is only one netlist.
    if values["period_ps"] is not None or any(None in point.values() for point in points):
        return None
    kept = {key: values[key] for key in _SYNTH} | {"points": points}
    return kept | ({"parts": parts} if (parts := parts_of(values)) else {})


def _point(values: dict[str, Any]) -> dict[str, Any]:
    """Return the stored part of a netlist's figures."""
    kept = {key: values[key] for key in _POINT}
    wired = values.get("wired")
    return kept | ({"wired": {key: wired[key] for key in _WIRED}} if wired else {})


def wired_mhz(point: dict[str, Any]) -> float | None:
    """Return a netlist's clock with modelled wires, from its figures; None if not measured."""
    return point.get("wired", {}).get("fmax_mhz")


def parts_of(values: dict[str, Any]) -> dict[str, float]:
    """Return the areas of a system's parts, from its ``synth.json`` or from stored figures."""
    modules = values.get("modules", [])
    if "parts" in values or not modules:
        return values.get("parts", {})
    return next(
        (divided(paper.parts, modules) for paper in read_papers() if paper.name == values["top"]),
        {},
    )


def completed(results: Iterable[Measured], figures: Figures) -> list[Measured]:
    """Return the results, completed by stored figures, sorted by name."""
    known = {(result.top, result.preset): result for result in results}
    libraries = {name: figures.get(name, {}) for name in LIBRARIES}
    devices = {name: figures.get(name, {}) for name in DEVICES}
    simulations, netlists = figures.get("simulations", {}), figures.get("netlists", {})
    for top in sorted({*simulations, *(t for table in libraries.values() for t in table)}):
        result = known.get((top, PRESET)) or _nothing(top, PRESET)
        built = {record.values["liberty"] for record in result.synth}
        kept = [_kept(table[top]) for table in libraries.values() if top in table]
        extra = [record for record in kept if record.values["liberty"] not in built]
        placed = {name: table[top] for name, table in devices.items() if top in table}
        known[top, PRESET] = replace(
            result,
            sim=_first(result.sim, simulations.get(top)),
            fpga=_first(result.fpga, {"devices": placed} if placed else None),
            synth=(*result.synth, *extra),
        )
    for top, values in netlists.items():
        result = known.get((top, NETLIST_PRESET)) or _nothing(top, NETLIST_PRESET)
        netlist = _first(result.netlist_sim, values)
        known[top, NETLIST_PRESET] = replace(result, netlist_sim=netlist)
    return [known[key] for key in sorted(known)]


def _kept(values: dict[str, Any]) -> Record:
    """Return stored figures as a record."""
    return Record(file=FIGURES, values=values, kept=True)


def _first(built: Record, values: dict[str, Any] | None) -> Record:
    """Return the built record, or else the stored one."""
    return built if built.values or not values else _kept(values)


def _nothing(top: str, preset: str) -> Measured:
    """Return a unit without measurements."""
    none = Record(file=FIGURES)
    return Measured(
        top=top, preset=preset, sim=none, netlist_sim=none, fpga=none, mutants=none, synth=()
    )
