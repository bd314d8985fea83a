"""Netlists of small designs for the tests of the flow, and what they are held to."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdl.unit import Unit
from hdl.yosys import run_yosys
from synth.asic import elaborate, map_to_cells
from synth.liberty import Library
from synth.mapped_design import Netlist
from synth.netlist import netlist_sources
from tests.synth.designs import emit

TOP = "design_under_test"


def synthesise(
    unit: Unit, library: Library, directory: Path, *, recipe: str = "area", **options: Any
) -> Netlist:
    """Map a unit to cells; `options` are those of `elaborate`."""
    files = emit(unit, directory / "rtl")
    return map_to_cells(
        elaborate(files, TOP, directory / "synth", **options), library, recipe=recipe
    )


def prove_equal(
    netlist: Netlist, directory: Path, change: Callable[[str], str] = lambda text: text
) -> bool:
    """Prove a netlist equal to its source for eight cycles from reset, by SAT.

    `directory` is that of `synthesise`.
    """
    cells, mapped = netlist_sources(netlist, directory / "netlist")
    mapped.write_text(change(mapped.read_text()))
    for file in sorted((directory / "rtl").glob("*.v")):
        shutil.copy(file, directory / "netlist" / f"source_{file.name}")
    log = run_yosys(
        [
            *(f"read_verilog {path.name}" for path in sorted(mapped.parent.glob("source_*.v"))),
            f"hierarchy -top {TOP}",
            "proc",
            "flatten",
            "memory",
            "opt_clean",
            f"rename {TOP} source",
            "design -stash source",
            f"read_verilog {cells.name} {mapped.name}",
            f"hierarchy -top {TOP}",
            "proc",
            "flatten",
            "memory",
            "opt_clean",
            f"rename {TOP} mapped",
            "design -copy-from source source",
            "miter -equiv -make_outputs -ignore_gold_x -flatten source mapped equal",
            "hierarchy -top equal",
            "async2sync",
            (
                "sat -seq 9 -prove-skip 1 -set-at 1 in_rst 1 -prove trigger 0 -set-init-undef "
                "-set-def-inputs -enable_undef equal"
            ),
        ],
        directory=mapped.parent,
    )
    assert ("no model found: SUCCESS!" in log) != ("model found: FAIL!" in log)
    return "no model found: SUCCESS!" in log


def most_pins(netlist: Netlist) -> int:
    """Return the most input pins on a net of the flat netlist, clocks apart."""
    passes = [f"read_json {netlist.stem}.json", f"hierarchy -top {TOP}", "flatten -noscopeinfo"]
    run_yosys([*passes, "write_json flat.json"], directory=netlist.directory)
    module = json.loads((netlist.directory / "flat.json").read_text())["modules"]
    pins: dict[int, int] = {}
    for cell in module[netlist.top]["cells"].values():
        for pin in netlist.library.cells[cell["type"]].inputs:
            (bit,) = cell["connections"][pin.name]
            if not pin.clock and isinstance(bit, int):
                pins[bit] = pins.get(bit, 0) + 1
    return max(pins.values())
