"""The report's units: one row each, with folded tables of all presets, devices and netlists."""

import math
import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from hdl.paths import ROOT
from synth.cells import EMPTY, Cell, Read, Table, scientific, spread
from synth.figures import FIGURES, LIBRARIES, WIRED_CLOCK, wired_mhz
from synth.results import Measured, Record

REFERENCE = Path(__file__).with_name("reference")

SHOWN = ("smollm2", "paper")
"""Presets with real dimensions, in order of preference."""

COLUMNS = ("unit", "utilisation", "area, µm²", "MHz", "mW", "memory bits")


@dataclass(frozen=True, kw_only=True)
class UnitRow:
    """One unit.

    Parameters
    ----------
    name, link, summary : str
        The unit, its page, and its function.
    cells : Sequence[Cell]
        Figures of `COLUMNS` at the selected preset.
    facts : Sequence[tuple[str, str]]
        The unit's entry in the catalog.
    tables : Sequence[Table]
        All measurements of the unit.
    """

    name: str
    link: str
    summary: str
    cells: Sequence[Cell]
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]


def by_unit(results: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Return the results by unit, real dimensions first."""
    order = {preset: place for place, preset in enumerate(SHOWN)}
    units: dict[str, list[Measured]] = {}
    for result in sorted(results, key=lambda result: order.get(result.preset, len(order))):
        units.setdefault(result.top, []).append(result)
    return units


def main_synthesis(result: Measured) -> Record:
    """Return the synthesis in the common library of the report, or else the first one."""
    first = [r for r in result.synth if r.values["liberty"] == next(iter(LIBRARIES.values()))]
    return next(iter((*first, *result.synth)), Record(file=FIGURES))


def unit_row(entry: Any, results: Sequence[Measured], directory: Path) -> UnitRow:
    """Return the row of one unit; a figure is of the first preset of `SHOWN` that has it."""
    real = [result for result in results if result.preset in SHOWN]
    nothing = Record(file=FIGURES)
    simulated = next((r.sim for r in real if r.sim.values.get("utilization")), nothing)
    synthesised = next((main_synthesis(r) for r in real if r.synth), nothing)
    each_cycle = operations_each_cycle(entry.top, entry.presets.get(SHOWN[0]))
    facts = [("latency", entry.latency), ("throughput", entry.throughput), ("paper", entry.source)]
    if each_cycle:
        facts.append(("at full rate", f"{each_cycle[1]:,} times a cycle: {each_cycle[0]}"))
    return UnitRow(
        name=entry.top,
        link=os.path.relpath(ROOT / entry.files["docs"], directory),
        summary=entry.summary,
        cells=[
            Read(record=simulated, directory=directory)("utilization", "{:.1%}"),
            *_area(Read(record=synthesised, directory=directory)),
        ],
        facts=facts,
        tables=[
            table
            for table in (
                _simulations(results, directory),
                _syntheses(entry, results, directory),
                _devices(results, directory),
            )
            if table.rows
        ],
    )


def operations_each_cycle(top: str, parameters: Any) -> tuple[str, int] | None:
    """Return a unit's kind and number of operations per cycle at full rate; None if unknown."""
    known = tomllib.loads((REFERENCE / "throughput.toml").read_text()).get(top)
    if known is None or parameters is None:
        return None
    factors = (
        factor if isinstance(factor, int) else attrgetter(factor)(parameters)
        for factor in known["factors"]
    )
    return known["operation"], math.prod(factors)


def _area(synth: Read) -> list[Cell]:
    """Return area, frequency, power and memory of the area- and the delay-optimised netlist."""
    points = synth.record.values.get("points")
    if not points:
        return [EMPTY] * (len(COLUMNS) - 2)
    small, fast = points[0], points[-1]
    power = fast.get("power_mw")
    bits = synth.record.values.get("memory_bits")
    texts = (
        spread(small["area_um2"], fast["area_um2"], "{:,.0f}"),
        spread(small["fmax_mhz"], fast["fmax_mhz"], "{:,.0f}"),
        "" if power is None else scientific(power),
        "" if bits is None else f"{bits:,}",
    )
    return [synth.cell(text) if text else EMPTY for text in texts]


def _simulations(results: Sequence[Measured], directory: Path) -> Table:
    """Return the table of simulations, of the RTL and of netlists."""
    rows = []
    for result in results:
        for what, record in (("RTL", result.sim), ("netlist", result.netlist_sim)):
            read = Read(record=record, directory=directory)
            if record.values:
                rows.append(
                    [
                        Cell(text=result.preset),
                        Cell(text=what),
                        read("tests", "{:,}"),
                        read("failures", "{:,}"),
                        read("values_checked", "{:,}"),
                        read("mismatches", "{:,}"),
                        read("cycles", "{:,}"),
                        read("ideal_cycles", "{:,}"),
                        read("utilization", "{:.1%}"),
                    ]
                )
    columns = ("preset", "simulated", "tests", "failed", "values compared", "differ",
               "cycles", "ideal", "utilisation")  # fmt: skip
    return Table(title="Simulation", columns=columns, rows=rows)


def _syntheses(entry: Any, results: Sequence[Measured], directory: Path) -> Table:
    """Return the table of netlists by preset and library."""
    rows = []
    for result in results:
        known = operations_each_cycle(entry.top, entry.presets.get(result.preset))
        for record in result.synth:
            read = Read(record=record, directory=directory)
            for point in record.values.get("points", []):
                part = read.part(record.values | point)
                gates, power = point["nand2_equivalents"], point.get("power_mw")
                wired = wired_mhz(point)
                rows.append(
                    [
                        Cell(text=result.preset),
                        Cell(text=record.values["liberty"]),
                        Cell(text=point["recipe"]),
                        part("area_um2", "{:,.0f}"),
                        part("nand2_equivalents", "{:,.0f}"),
                        part.cell(f"{gates / known[1]:,.0f}") if known else EMPTY,
                        part("flops", "{:,}"),
                        part("memory_bits", "{:,}"),
                        part("fmax_mhz", "{:,.0f}"),
                        part.cell(f"{wired:,.0f}") if wired else EMPTY,
                        part.cell(scientific(power)) if power else EMPTY,
                    ]
                )
    columns = ("preset", "library", "mapped for", "µm²", "NAND2", "NAND2 per operation/cycle",
               "flip-flops", "memory bits", "MHz, default wire load", WIRED_CLOCK,
               "mW")  # fmt: skip
    title = "Netlists: logic only, SRAM excluded; OSU018 has no default wire load"
    return Table(title=title, columns=columns, rows=rows)


def _devices(results: Sequence[Measured], directory: Path) -> Table:
    """Return the table of FPGA devices."""
    rows = []
    for result in results:
        for device in result.fpga.values.get("devices", {}).values():
            read = Read(record=result.fpga, directory=directory).part(device)
            counts = [read(kind, "{:,g}") for kind in ("lut", "ff", "dsp", "bram")]
            rows.append(
                [
                    Cell(text=result.preset),
                    Cell(text=device["title"]),
                    *counts,
                    read("fmax_mhz", "{:,.0f}"),
                ]
            )
    columns = ("preset", "device", "LUT", "FF", "DSP", "block RAM", "MHz, routed")
    return Table(title="FPGA", columns=columns, rows=rows)
