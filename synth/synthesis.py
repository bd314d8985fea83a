"""The verb ``synth``: synthesis and measurement of one design, and ``synth.json``.

Without a period, there are two netlists, area-optimised and delay-optimised. The first is the
headline; the JSON contains both, because area and delay must be compared together. With a period,
there is one netlist: the smallest that meets timing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.digest import verilog_digest
from hdl.errors import UserError
from hdl.paths import replace_text
from synth.asic import RECIPES, check_period, elaborate, map_to_cells, tool_versions
from synth.liberty import Library
from synth.mapped_design import Netlist
from synth.partition import kept_modules
from synth.replay import Activity
from synth.timing import Timing, analyse
from synth.wires import (
    PITCHES,
    PITCHES_SOURCE,
    UTILISATION,
    WireLoad,
    default_wire_load,
    placed_wire_load,
)

FLATTEN_LIMIT = 150_000
"""Maximum number of cells of a design that is flattened by default, because the time of mapping
grows faster than linearly."""

ATTEMPTS = 3
"""Maximum number of mappings with one recipe before the next recipe."""

LEAST_STEP = 0.01
"""Minimum change of the mapper's target from one attempt to the next, as a share of the period."""

EXTERNAL = 0.2
"""Share of a given period for external delay at each port."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One netlist and its timing, which is None without OpenSTA or without real delays.

    Parameters
    ----------
    netlist : Netlist
        The netlist.
    timing : Timing or None
        Timing with the library's default wire load.
    wired : Timing or None
        Timing with `wires`; None unless it is requested.
    wires : WireLoad or None
        The wire load by placement area.
    """

    netlist: Netlist
    timing: Timing | None
    wired: Timing | None = None
    wires: WireLoad | None = None


@dataclass(frozen=True, kw_only=True)
class SynthesisResult:
    """The results of ``synth`` for a design.

    Parameters
    ----------
    top, preset : str
        The design.
    library : Library
        The cells.
    period_ps : float or None
        The requested clock period.
    form : str
        Form of the netlists: ``flat``, ``parts`` or ``hierarchy``, as in `WordLevel`.
    points : tuple[Point, ...]
        The netlists, the headline first.
    hierarchy : Netlist
        The netlist mapped module by module, for the areas of the modules.
    verilog_digest : str
        Digest of the measured Verilog, see `hdl.digest.verilog_digest`.
    file : Path
        ``synth.json``.
    """

    top: str
    preset: str
    library: Library
    period_ps: float | None
    form: str
    points: tuple[Point, ...]
    hierarchy: Netlist
    verilog_digest: str
    file: Path

    @property
    def headline(self) -> Point:
        """The netlist for headline figures."""
        return self.points[0]


def measure_design(
    verilog: Sequence[Path],
    top: str,
    library: Library,
    directory: Path,
    *,
    preset: str = "",
    period_ps: float | None = None,
    form: str | None = None,
    wires: bool = False,
    activity: Callable[[Netlist], Activity | None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> SynthesisResult:
    """Synthesise a design, measure it and write ``synth.json``.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog.
    top, preset : str
        The design.
    library : Library
        The cells.
    directory : Path
        ``build/<top>/<preset>`` for the latest JSON; ``synth/<library>/`` below contains the JSON
        and the netlists of each library.
    period_ps : float, optional
        Required clock period.
    form : str, optional
        ``flat``, ``parts``, which keeps `kept_modules`, or ``hierarchy``; if absent,
        ``flat`` up to `FLATTEN_LIMIT` cells and ``hierarchy`` above.
    wires : bool
        Whether to measure a second timing with the wire load by placement area.
    activity : Callable, optional
        Function that returns the switching activity of a netlist, or None.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        If the design has a structural fault, the period is not positive, or the library has no
        delays for `wires`.
    """
    check_period(period_ps)
    if wires and not library.timed:
        raise UserError(f"WIRES=1 needs a library with delays, not {library.name}")
    if not library.timed:
        period_ps = None
    work = directory / "synth" / library.name
    # The old JSON describes netlists that change from here on.
    (work / "synth.json").unlink(missing_ok=True)
    progress("mapping each module")
    hierarchical = elaborate(verilog, top, work, flatten=False)
    hierarchy = map_to_cells(hierarchical, library)
    form = form or ("flat" if hierarchy.cells <= FLATTEN_LIMIT else "hierarchy")
    design = hierarchical
    if form != "hierarchy":
        kept = kept_modules(hierarchy.modules, FLATTEN_LIMIT) if form == "parts" else None
        design = elaborate(verilog, top, work, kept=kept)

    def point(recipe: str, target_ps: float | None = None) -> Point:
        progress(f"mapping for {recipe}")
        if design is hierarchical and recipe == RECIPES[0] and not target_ps:
            netlist = hierarchy
        else:
            netlist = map_to_cells(design, library, recipe=recipe, target_ps=target_ps)
        progress("timing and power")
        external = EXTERNAL if period_ps else 0.0
        pins = activity(netlist)
        load = placed_wire_load(netlist) if wires else None
        wired = load and analyse(
            netlist, period_ps=period_ps, external=external, activity=pins, wires=load
        )
        # This analysis is last, because the files of OpenSTA stay those of the headline figures.
        timing = analyse(netlist, period_ps=period_ps, external=external, activity=pins)
        return Point(netlist=netlist, timing=timing, wired=wired, wires=load)

    if period_ps:
        points = [_meet(point, period_ps)]
    else:
        extremes = (RECIPES[0], RECIPES[-1]) if library.timed else RECIPES[:1]
        points = [point(recipe) for recipe in extremes]
    result = SynthesisResult(
        top=top,
        preset=preset,
        library=library,
        period_ps=period_ps,
        form=design.form,
        points=tuple(points),
        hierarchy=hierarchy,
        verilog_digest=verilog_digest(verilog),
        file=directory / "synth.json",
    )
    for file in (work / "synth.json", result.file):
        replace_text(file, json.dumps(as_json(result), indent=1) + "\n")
    return result


def _meet(point: Callable[[str, float], Point], period_ps: float) -> Point:
    """Return the minimum-area netlist with non-negative slack, or the one with the best slack.

    The mapper's target covers only the logic. The slack of the previous attempt determines the
    share of the period for registers and external delays. A target that changes by less than
    `LEAST_STEP` gives much the same netlist again.
    """
    best: tuple[float, Point] | None = None
    for recipe in RECIPES:
        target = period_ps
        for _ in range(ATTEMPTS):
            attempt = point(recipe, target)
            slack = _slack(attempt, period_ps)
            if slack >= 0:
                return attempt
            if best is None or slack > best[0]:
                best = slack, attempt
            target += min(slack, -LEAST_STEP * period_ps)
            if target <= 0:
                break
    assert best is not None
    # The files of a recipe are those of its last attempt, so the best one is made again.
    netlist = best[1].netlist
    return point(netlist.recipe, netlist.target_ps or period_ps)


def _slack(point: Point, period_ps: float) -> float:
    """Return the worst slack, from the mapper's own delay if there is no timing analysis."""
    if point.timing:
        return min((path.slack_ps for path in point.timing.paths), default=period_ps)
    return period_ps - point.netlist.abc_delay_ps


def as_json(result: SynthesisResult) -> dict[str, Any]:
    """Return the contents of ``synth.json``."""
    library, headline = result.library, result.headline
    return {
        "top": result.top,
        "preset": result.preset,
        "verilog_digest": result.verilog_digest,
        "liberty": library.name,
        "liberty_file": library.path.name,
        "liberty_digest": library.digest,
        "liberty_origin": library.origin,
        "corner": library.corner,
        "wire_load": load.title if (load := default_wire_load(library)) else None,
        "period_ps": result.period_ps,
        "form": result.form,
        **_figures(headline, result),
        "critical_path": _critical_path(headline.timing),
        "points": [_figures(point, result) for point in result.points],
        "memories": [
            {**asdict(memory), "bits": memory.bits} for memory in headline.netlist.memories
        ],
        "modules": [
            asdict(module) | {"nand2_equivalents": round(module.area_um2 / library.nand2_area, 1)}
            for module in result.hierarchy.modules
        ],
        "tools": tool_versions()
        | ({"opensta": headline.timing.version} if headline.timing else {}),
    }


def _figures(point: Point, result: SynthesisResult) -> dict[str, Any]:
    """Return the figures of one netlist."""
    netlist, timing, library = point.netlist, point.timing, result.library
    critical = timing.critical if timing else None
    figures: dict[str, Any] = {
        "recipe": netlist.recipe,
        "netlist": str(netlist.verilog.relative_to(result.file.parent)),
        "area_um2": round(netlist.area_um2, 3) if library.timed else None,
        "sequential_um2": round(netlist.sequential_um2, 3) if library.timed else None,
        "logic_um2": (
            round(netlist.area_um2 - netlist.sequential_um2, 3) if library.timed else None
        ),
        "nand2_equivalents": round(netlist.area_um2 / library.nand2_area, 1),
        "memory_bits": netlist.memory_bits,
        "cells": netlist.cells,
        "flops": netlist.flops,
        "mapper_delay_ps": netlist.abc_delay_ps if library.timed else None,
        "fmax_mhz": round(timing.fmax_mhz, 2) if timing and timing.fmax_mhz else None,
        "critical_path_ps": round(critical.length_ps, 1) if critical else None,
        "slack_ps": None,
        "paths_ps": {},
        "power_mw": None,
        "power_frequency_mhz": None,
        "activity": None,
    }
    if point.wires and point.wired:
        figures["wired"] = _wired_figures(point.wires, point.wired)
    if timing:
        if result.period_ps:
            figures["slack_ps"] = round(_slack(point, result.period_ps), 1)
        figures["paths_ps"] = {path.kind: round(path.length_ps, 1) for path in timing.paths}
        if timing.power:
            figures["power_mw"] = round(timing.power.total_mw, 6)
            figures["power_frequency_mhz"] = round(timing.power.frequency_mhz, 2)
            figures["activity"] = timing.activity
    return figures


def _wired_figures(wires: WireLoad, timing: Timing) -> dict[str, Any]:
    """Return the figures of a netlist with the wire load by placement area."""
    critical = timing.critical
    return {
        **asdict(wires),
        "pitches_per_load": PITCHES,
        "pitches_source": PITCHES_SOURCE,
        "utilisation": UTILISATION,
        "fmax_mhz": round(timing.fmax_mhz, 2) if timing.fmax_mhz else None,
        "critical_path_ps": round(critical.length_ps, 1) if critical else None,
        "slack_ps": round(min((path.slack_ps for path in timing.paths), default=0.0), 1),
        "power_mw": round(timing.power.total_mw, 6) if timing.power else None,
    }


def _critical_path(timing: Timing | None) -> list[dict[str, Any]]:
    """Return the longest path as a list of steps."""
    return [asdict(step) for step in timing.critical.steps] if timing and timing.critical else []
