"""The tables of laid-out units, from stored figures and from a build directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from hdl.target import Target
from synth.digests import MARK, Digest, Form
from synth.layout.calibration import LENGTHS
from synth.layout.table import LAYOUTS, kept_layouts, layouts_text, merged_layouts, tables


def _layout(top: str, **changes: Any) -> dict[str, Any]:
    """Return the contents of a ``layout.json``."""
    model = {"pitches_per_load": list(LENGTHS), "critical_ps": [1000 + 40 * n for n in LENGTHS]}
    checks = {"drc_errors": 2, "lvs_matches": False, "lvs_differences": 7}
    return {
        "top": top, "preset": "tiny", "verilog_digest": "0", "liberty": "osu018_stdcells",
        "density": 0.7, "period_ps": None, "cells": 1234, "clock_buffers": 5,
        "cell_area_um2": 4321.0, "core_um": [80.0, 90.0], "utilisation": 0.6345, "wire_um": 9876.5,
        "pitches_per_load": 2.345, "routes_repeated": True, "mended": ["n1"], "model": model,
        "wireless": {"fmax_mhz": 500.0, "setup_ps": {"a": 2000.0}},
        "wired": {"fmax_mhz": 400.0, "setup_ps": {"a": 1100.0}, "hold_slack_ps": 123.4},
        "checks": checks, "processor_seconds": {"placement": 1.5, "routing": 2.5}, "tools": {},
    } | changes  # fmt: skip


def _build(directory: Path, *layouts: dict[str, Any]) -> Path:
    """Write layouts to a build directory."""
    for layout in layouts:
        file = directory / layout["top"] / layout["preset"] / "layout" / "layout.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(layout))
    return directory


def test_a_new_layout_replaces_the_stored_one(tmp_path: Path) -> None:
    kept = merged_layouts([], _build(tmp_path / "old", _layout("a"), _layout("b", cells=7)))
    assert [layout["top"] for layout in kept] == ["b", "a"]
    found = merged_layouts(kept, _build(tmp_path / "new", _layout("a", cells=3)))
    assert [(layout["top"], layout["cells"]) for layout in found] == [("a", 3), ("b", 7)]
    assert json.loads(layouts_text(found)) == found and "density" not in found[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"liberty": "other"},
        {"density": 0.5},
        {"period_ps": 900.0},
        {"wired": None},
        {"checks": None},
    ],
)
def test_other_and_incomplete_layouts_are_not_stored(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    assert merged_layouts([], _build(tmp_path, _layout("a", **changes))) == []


def test_rows_have_the_figures_and_the_mark_of_earlier_verilog(tmp_path: Path) -> None:
    layouts = merged_layouts([], _build(tmp_path, _layout("a"), _layout("b", verilog_digest="1")))
    present = Digest(verilog="0", parameters="", sources="")
    digests = {top: {Form("tiny", Target.ASIC).name: present} for top in "ab"}
    first, second = tables(layouts, digests)["layouts"][1]
    assert first == [
        "`a` tiny", "1,234, 5", "4,321", "80 x 90", "63.4 %", "9,876", "2.35", "500", "400", "123",
        "2", "7 differences", "1", "4",
    ]  # fmt: skip
    assert second[0] == f"`b` tiny {MARK}" and second[1:] == first[1:]


def test_stored_layouts_are_written_as_they_were_read() -> None:
    assert layouts_text(kept_layouts()) == LAYOUTS.read_text()
