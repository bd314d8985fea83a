"""The figures of a design: from results below build/, else from `docs/comparison.json`.

A result carries the digest of its Verilog, or of the golden model's code. A figure whose digest is
not the present one is stale: it is used only if no present one exists, and has a mark.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from hdl.paths import BUILD
from hdl.target import Target
from synth.comparison import FIGURES, System, at_bank_clock
from synth.contexts import on_lines
from synth.figures import LIBRARIES
from synth.present_verilog import present_verilog
from synth.results import Record
from systola.comparing.design import Command, Design, kept_commands
from systola.generation.finished import generated_blocks
from systola.options import path_shown

WINDOWS, CONTEXT, TEXT = 8, 256, "news"
"""Conditions of a perplexity on the page."""

PERPLEXITIES = {
    "perplexity, 8 windows of 256 tokens": "perplexity",
    "perplexity, 8 windows, 128 cached": "perplexity_128",
}
"""Figures of `docs/comparison.json` by the names of their commands."""

NETLISTS = ("area_um2", "clock_mhz", "fastest_um2", "fastest_mhz", "memory_bits")
MEASURED_BY: Mapping[str, tuple[str, ...]] = {
    "perplexity": ("perplexity",),
    "generate": ("cycles", "bytes_per_token"),
    "synth": NETLISTS,
    "power": ("pj_per_cycle",),
}
WITH_MEMORY = ("memory_cycles", "memory_waiting", "memory_utilization", "memory_bytes")
"""The figures of a run with an external memory."""

"""Figures by the command that measures them, in the order of the commands."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure and its origin.

    Parameters
    ----------
    value : float or str
        The figure, or a word that replaces it.
    source : str
        File that contains it.
    stale : bool
        Whether its Verilog or its golden model differs from the present one.
    kept : bool
        Whether it is from `docs/comparison.json`.
    extrapolated : str
        The measured range, if the figure is outside it.
    """

    value: float | str
    source: str
    stale: bool = False
    kept: bool = False
    extrapolated: str = ""


Figures = dict[str, Figure]


@dataclass(frozen=True)
class Reader:
    """Reads the figures of designs.

    Parameters
    ----------
    context : int, optional
        Cached tokens at which cycles and bytes are given; those of the run if None.
    report : Callable
        Called with what is emitted to find its digest.
    """

    context: int | None
    report: Callable[[str], None]

    def figures(self, design: Design) -> Figures:
        """Return all figures of a design that exist, by the names of `docs/comparison.json`."""
        found = kept_figures(design)
        if self.context is not None:
            found = {n: own for n, own in found.items() if n not in MEASURED_BY["generate"]}
            found |= kept_contexts(design, capped(self.context, design))
        found |= self._perplexity(design) | self._run(design)
        found |= self._netlists(design) | self._power(design) | self._with_memory(design)
        if design.choice.top == "kelle":
            found["edram_bits"] = Figure(value=edram_bits(design), source="parameters")
        if "pj_per_cycle" in found and "cycles" in found:
            found["energy_mj"] = _product(found["pj_per_cycle"], found["cycles"], 1e-9)
        return found

    def missing(self, design: Design, figures: Figures) -> list[str]:
        """Return the kinds of commands that measure what is absent or stale, in their order."""
        kinds = [
            kind
            for kind, names in MEASURED_BY.items()
            if any(name not in figures or figures[name].stale for name in names)
        ]
        timed = [figures.get(name) for name in WITH_MEMORY]
        if design.timed and any(own is None or own.stale for own in timed):
            kinds.append("memory")
        runs = [one for one in self._runs(design) if one.values["settings"]["waves"]]
        if "power" in kinds and not any(self._is_present(one, design) for one in runs):
            kinds.insert(kinds.index("power"), "waves")
        return kinds

    def _perplexity(self, design: Design) -> Figures:
        """Return the perplexity on the page's windows."""
        system = design.system
        records = [
            record
            for record in _records((BUILD / "perplexity").glob(f"{system.top}-*.json"))
            if record.values["identity"].get("parameters") == repr(system.p)
            and (record.values["text"], record.values["context"]) == (TEXT, CONTEXT)
            and len(record.values["losses"]) == WINDOWS
        ]
        if not records:
            return {}
        present = json.loads(json.dumps(system.golden_identity))
        found: Figures = {}
        for record in records:
            identity = record.values["identity"]
            stale = identity["code"] != present["code"]
            if identity | {"code": ""} == present | {"code": ""} and not (found and stale):
                value = record.values["perplexity"]
                found["perplexity"] = _figure(record, value, stale=stale)
        return found

    def _run(self, design: Design) -> Figures:
        """Return cycles and bytes of the run that generated most tokens, a present one if any."""
        chosen = self._longest(self._runs(design), design)
        if chosen is None:
            return {}
        present, record = chosen
        blocks = generated_blocks(record.values["blocks"])
        measured = {
            "cycles": [block["cycles"] for block in blocks],
            "bytes_per_token": [block["bytes_read"] + block["bytes_written"] for block in blocks],
        }
        cached = [capped(block["first"], design) for block in blocks]
        found: Figures = {}
        for name, values in measured.items():
            if self.context is None:
                found[name] = _figure(record, fmean(values), stale=not present)
            elif len(set(cached)) > 1:
                tokens = capped(self.context, design)
                value, beyond = on_line(cached, values, tokens)
                figure = _figure(record, value, stale=not present)
                found[name] = replace(figure, extrapolated=beyond)
        return found

    def _longest(self, runs: list[Record], design: Design) -> tuple[bool, Record] | None:
        """Return the run that generated most tokens, a present one if any, and if it is one."""
        marked = [(self._is_present(one, design), one) for one in runs]
        if not marked:
            return None
        return max(marked, key=lambda own: (own[0], len(own[1].values["blocks"])))

    def _with_memory(self, design: Design) -> Figures:
        """Return the means per generated token of a run with the external memory."""
        chosen = self._longest(self._runs(design, timed=True), design) if design.timed else None
        if chosen is None:
            return {}
        present, record = chosen
        blocks = generated_blocks(record.values["blocks"])
        used = [block["memory"] for block in blocks]
        measured = (
            [block["cycles"] for block in blocks],
            [own["waiting"] for own in used],
            [own["utilization"] for own in used],
            [own["bytes_read"] + own["bytes_written"] for own in used],
        )
        return {
            name: _figure(record, fmean(values), stale=not present)
            for name, values in zip(WITH_MEMORY, measured, strict=True)
        }

    def _netlists(self, design: Design) -> Figures:
        """Return area, clock and memory bits of the area- and delay-optimised netlists."""
        library = LIBRARIES["nangate45"]
        record = Record.read(design.system.folder.parent / "synth" / library / "synth.json")
        points = record.values.get("points", [])
        # With a period there is one netlist.
        if len(points) != 2:
            return {}
        area, delay = points
        values = (
            *(area["area_um2"], area["fmax_mhz"], delay["area_um2"], delay["fmax_mhz"]),
            record.values["memory_bits"],
        )
        stale = self._is_stale(record, design)
        return {
            name: _figure(record, value, stale=stale)
            for name, value in zip(NETLISTS, values, strict=True)
            if value is not None
        }

    def _power(self, design: Design) -> Figures:
        """Return the energy of the first netlist that reaches the clock, if only one is legal."""
        record = Record.read(design.system.folder.parent / "power.json")
        if record.values.get("liberty") != LIBRARIES["nangate45"]:
            return {}
        only = at_bank_clock(design.kept, design.system.p)["memory"].get("clock_mhz", 0)
        points = [one for one in record.values["points"] if one["frequency_mhz"] >= only]
        if not points:
            return {}
        # Leakage lasts for the whole cycle.
        slower = points[0]["frequency_mhz"] / only if only else 1
        value = points[0]["dynamic_pj"] + points[0]["leakage_pj"] * slower
        return {"pj_per_cycle": _figure(record, value, stale=self._is_stale(record, design))}

    def _runs(self, design: Design, *, timed: bool = False) -> list[Record]:
        """Return the finished runs of ``generate``, with ideal ports or with the memory."""
        system = design.timed.system if timed and design.timed else design.system
        names = ("budget", "reserved", "retention", "memory", "clock")
        settings = system.settings.identity
        return [
            record
            for record in _records(system.folder.glob("run-*/record.json"))
            if record.values.get("finished")
            and record.values["model"] == system.model.digest
            and record.values["parameters"] == repr(system.p)
            and all(record.values["settings"].get(n) == settings.get(n) for n in names)
        ]

    def _is_present(self, run: Record, design: Design) -> bool:
        """Return whether a run's Verilog is the present one; earlier records have no digest."""
        digest = run.values.get("verilog_digest")
        return digest is not None and digest == self._digest(design, Target.FPGA)

    def _is_stale(self, record: Record, design: Design) -> bool:
        """Return whether a netlist's Verilog differs from the present one."""
        return record.values["verilog_digest"] != self._digest(design, Target.ASIC)

    def _digest(self, design: Design, target: Target) -> str:
        """Return the digest of a design's present Verilog."""
        return present_verilog(design.entry, design.dimensions, target, self.report)


def kept_figures(design: Design) -> Figures:
    """Return the figures of `docs/comparison.json` that were measured on the same design.

    Area and energy belong to the parameters, cycles and bytes to parameters and cache. The golden
    model of a perplexity has the parameters of the run, and on top those of its own command.
    """
    kept = design.kept
    names: dict[str, str] = {}
    if design.system.p == design.run.system.p:
        names |= {name: name for name in (*NETLISTS, "energy_mj")}
    if design.equals(design.run):
        names |= {name: name for name in MEASURED_BY["generate"]}
    run = kept_commands(kept)["generate"]
    for what, name in PERPLEXITIES.items():
        command = kept["commands"].get(what)
        if command and design.equals(design.of_commands(run, Command.read(command))):
            names["perplexity"] = name
    found = {
        own: Figure(
            value=kept["figures"][name],
            source=str(path_shown(FIGURES)),
            stale=name in kept.get("old", ()),
            kept=True,
        )
        for own, name in names.items()
    }
    if energy := found.pop("energy_mj", None):
        found["pj_per_cycle"] = replace(energy, value=_per_cycle(kept))
    return found


def kept_contexts(design: Design, tokens: int) -> Figures:
    """Return cycles and bytes at a number of cached tokens, by `contexts` of the same parameters.

    A layer's maximum number of cached tokens does not change the cost of one below it.
    """
    runs = design.kept.get("contexts", [])
    if not runs or design.system.p != design.run.system.p:
        return {}
    found = {}
    for name, own in (("cycles", "cycles"), ("bytes_per_token", "bytes")):
        cached, values = [run["cached"] for run in runs], [run[own] for run in runs]
        value, beyond = on_lines(cached, values, tokens)
        found[name] = Figure(
            value=value,
            source=str(path_shown(FIGURES)),
            stale=any(run.get("old", False) for run in runs),
            kept=True,
            extrapolated=beyond,
        )
    return found


def capped(tokens: int, design: Design) -> int:
    """Return the number of cached tokens after that many tokens of a text."""
    return tokens if design.cached is None else min(tokens, design.cached)


def on_line(cached: list[int], values: list[float], tokens: int) -> tuple[float, str]:
    """Return the value at a number of cached tokens, on the line of least squares.

    The second result is the measured range in words if the number is outside it, else empty.
    """
    slope, offset = np.polyfit(cached, values, 1)
    first, last = min(cached), max(cached)
    inside = first <= tokens <= last
    return float(offset + slope * tokens), "" if inside else f"{first} to {last} cached tokens"


def edram_bits(design: Design) -> int:
    """Return the bits of Kelle's eDRAM: two bytes of each key and value, in all banks."""
    edram = design.system.p.memory.edram
    return 2 * 2 * 8 * edram.row_channels * design.system.p.words


def _records(files: Iterable[Any]) -> list[Record]:
    return [Record.read(file) for file in sorted(files)]


def _figure(record: Record, value: float, *, stale: bool) -> Figure:
    return Figure(value=value, source=str(path_shown(record.file)), stale=stale)


def _per_cycle(kept: System) -> float:
    """Return the kept energy of the logic in pJ/cycle."""
    return kept["figures"]["energy_mj"] * 1e9 / kept["figures"]["cycles"]


def _product(first: Figure, second: Figure, factor: float) -> Figure:
    """Return the product of two figures with the marks of both."""
    assert not isinstance(first.value, str) and not isinstance(second.value, str)
    return Figure(
        value=first.value * second.value * factor,
        source=first.source,
        stale=first.stale or second.stale,
        kept=first.kept or second.kept,
        extrapolated=first.extrapolated or second.extrapolated,
    )
