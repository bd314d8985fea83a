"""The tables of `docs/layout.md`: laid-out units, and the errors of the wire load model.

`docs/layout/layouts.json` has the figures of the layouts, one line each. ``make report DOCS=1``
copies them from the build directory: those of OSU018 at the default density, without a period.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdl.paths import ROOT
from hdl.target import Target
from synth.digests import MARK, Digests, Form, is_old
from synth.layout.calibration import held_out, sample_of
from synth.layout.units import DENSITY
from synth.wires import PITCHES

PAGE = ROOT / "docs" / "layout.md"

LAYOUTS = ROOT / "docs" / "layout" / "layouts.json"

_KEPT = (
    "top", "preset", "verilog_digest", "cells", "clock_buffers", "cell_area_um2", "core_um",
    "utilisation", "wire_um", "pitches_per_load", "routes_repeated", "mended", "wireless", "wired",
    "model", "checks", "processor_seconds", "tools",
)  # fmt: skip

_HEAD = (
    "unit", "cells, clock buffers", "cells, um2", "core, um", "utilisation", "wire, um",
    "pitches per load", "MHz without wires", "MHz wired", "hold slack, ps", "DRC errors", "LVS",
    "nets mended", "s",
)  # fmt: skip

Layouts = list[dict[str, Any]]
"""Figures of layouts, the smallest layout first."""

Table = tuple[Sequence[str], list[list[str]]]
"""Titles of the columns, and rows."""


def kept_layouts() -> Layouts:
    """Return the contents of `docs/layout/layouts.json`."""
    return json.loads(LAYOUTS.read_text())


def merged_layouts(kept: Layouts, build: Path) -> Layouts:
    """Return the layouts, updated with those of a build directory that are complete."""
    found = {(layout["top"], layout["preset"]): layout for layout in kept}
    for file in build.glob("*/*/layout/layout.json"):
        figures = json.loads(file.read_text())
        standard = figures.get("liberty") == "osu018_stdcells" and figures["density"] == DENSITY
        complete = all(figures.get(key) is not None for key in _KEPT)
        if standard and complete and figures["period_ps"] is None:
            found[figures["top"], figures["preset"]] = {key: figures[key] for key in _KEPT}
    return sorted(found.values(), key=lambda layout: (layout["cells"], layout["top"]))


def layouts_text(layouts: Layouts) -> str:
    """Return the text of the file: one line per layout."""
    return "[\n" + ",\n".join(f" {json.dumps(layout)}" for layout in layouts) + "\n]\n"


def tables(layouts: Layouts, digests: Digests) -> dict[str, Table]:
    """Return the tables of the page by name: titles of the columns, and rows."""
    return {"layouts": _layouts(layouts, digests), "calibration": _calibration(layouts)}


def _title(layout: dict[str, Any]) -> str:
    return f"`{layout['top']}` {layout['preset']}"


def _layouts(layouts: Layouts, digests: Digests) -> Table:
    """Return the table of the layouts; a mark is at those of earlier Verilog."""
    rows: list[list[str]] = []
    for layout in layouts:
        form = Form(layout["preset"], Target.ASIC)
        old = is_old(layout["top"], form, layout["verilog_digest"], digests)
        checks, mended = layout["checks"], layout["mended"]
        width, height = layout["core_um"]
        wired = layout["wired"]
        rows.append(
            [
                f"{_title(layout)} {MARK}" if old else _title(layout),
                f"{layout['cells']:,}, {layout['clock_buffers']}",
                f"{layout['cell_area_um2']:,.0f}",
                f"{width:.0f} x {height:.0f}",
                f"{layout['utilisation']:.1%}".replace("%", " %"),
                f"{layout['wire_um']:,.0f}",
                f"{layout['pitches_per_load']:.2f}",
                f"{layout['wireless']['fmax_mhz']:,.0f}",
                f"{wired['fmax_mhz']:,.0f}",
                "-" if wired["hold_slack_ps"] is None else f"{wired['hold_slack_ps']:.0f}",
                f"{checks['drc_errors']:,}",
                "matches" if checks["lvs_matches"] else f"{checks['lvs_differences']} differences",
                str(len(mended)),
                f"{sum(layout['processor_seconds'].values()):.0f}",
            ]
        )
    return _HEAD, rows


def _calibration(layouts: Layouts) -> Table:
    """Return the table of the wire load model's errors."""
    samples = [sample_of(layout) for layout in layouts]
    lengths = held_out([sample for sample in samples if sample])
    rows: list[list[str]] = []
    for layout, sample in zip(layouts, samples, strict=True):
        if sample:
            pitches, error = lengths[sample.name]
            shown = [f"{sample.error(PITCHES):+.1%}", f"{pitches:.2f}", f"{error:+.1%}"]
            rows.append([_title(layout), *(text.replace("%", " %") for text in shown)])
    head = (
        "unit",
        f"error at {PITCHES:g} pitches",
        "length by the other units, pitches",
        "error with it",
    )
    return head, rows
