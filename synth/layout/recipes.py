"""Clocks of the recipes without wires, with wires, and with cells that ABC sizes for the wires.

The wires are those of `synth.wires`: a length by fan-out and placement area, no layout. Each unit
is mapped flat by each recipe of `synth.asic`. ABC then sizes the same cells again with the same
wires, and OpenSTA measures both netlists.

    python -m synth.layout.recipes argmax:tiny slice_walk:smollm2
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hdl.digest import verilog_digest
from hdl.emitted import emit_unit
from hdl.errors import UserError
from hdl.paths import BUILD, replace_text
from synth.asic import (
    RECIPES,
    RELAXED_PS,
    elaborate,
    map_to_cells,
    script,
    tool_versions,
    write_netlist,
)
from synth.layout.units import named_unit
from synth.liberty import Library, find_library
from synth.mapped_design import Netlist
from synth.sizing import size_cells
from synth.timing import MISSING, analyse
from synth.wires import MODEL, WireLoad, default_wire_load, placed_wire_load


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The clocks of one recipe in MHz.

    Parameters
    ----------
    recipe : str
        The recipe.
    default_mhz : float
        With the library's default wire load, which may be none.
    wired_mhz : float
        The same netlist, with the wire load by placement area.
    resized_mhz : float
        The cells sized again for this wire load, with this wire load.
    um_per_load : float
        Length of wire per load of this wire load.
    """

    recipe: str
    default_mhz: float
    wired_mhz: float
    resized_mhz: float
    um_per_load: float


def measure_recipes(
    verilog: Sequence[Path], top: str, library: Library, directory: Path
) -> list[Clocks]:
    """Map a design flat by each recipe, and return the clocks.

    Parameters
    ----------
    verilog : Sequence[Path]
        The design.
    top : str
        Its top module.
    library : Library
        The cells.
    directory : Path
        Folder of the files.

    Raises
    ------
    UserError
        If the library has no delays, OpenSTA is missing, or the design has no path.
    """
    if not library.timed:
        raise UserError(f"recipes need a library with delays, not {library.name}")
    design = elaborate(verilog, top, directory)
    found: list[Clocks] = []
    for recipe in RECIPES:
        netlist = map_to_cells(design, library, recipe=recipe)
        wires = placed_wire_load(netlist)
        found.append(
            Clocks(
                recipe=recipe,
                default_mhz=_clock(netlist),
                wired_mhz=_clock(netlist, wires),
                resized_mhz=_clock(size_for_wires(netlist, wires), wires),
                um_per_load=wires.um_per_load,
            )
        )
    return found


def size_for_wires(netlist: Netlist, wires: WireLoad) -> Netlist:
    """Return a netlist without target delay with cells that ABC sizes for a wire load."""
    directory, library = netlist.directory, netlist.library
    stem = f"{netlist.stem}.wires"
    design = json.loads((directory / f"{netlist.stem}.mapped.json").read_text())
    target = "" if netlist.recipe == RECIPES[-1] else f"-D {RELAXED_PS:.0f}"
    liberty = replace(library, path=write_liberty(library, wires, directory))
    delay = size_cells(design, liberty, directory, script("size_wires.abc", target=target))
    (directory / f"{stem}.mapped.json").write_text(json.dumps(design))
    modules, memories, counts = write_netlist(
        netlist.top, stem, library, directory, netlist.memories
    )
    return replace(
        netlist,
        stem=stem,
        modules=modules,
        memories=memories,
        abc_delay_ps=delay,
        cell_counts=counts,
    )


def write_liberty(library: Library, wires: WireLoad, directory: Path) -> Path:
    """Write a library whose default wire load is the given one, for ABC; return its path."""
    text = library.path.read_text(encoding="latin-1")
    text = re.sub(r"\bdefault_wire_load\w*\s*:[^;\n]*;", "", text)
    capacitance = wires.ff_per_um / library.capacitance_unit_ff
    group = (
        f'\n  wire_load ("{MODEL}") {{\n    capacitance : {capacitance:.6g};\n'
        f"    resistance : 0;\n    slope : {wires.um_per_load:.6g};\n"
        f'    fanout_length (1, {wires.um_per_load:.6g});\n  }}\n  default_wire_load : "{MODEL}";\n'
    )
    path = directory / "wires.lib"
    head = re.compile(r"\blibrary\s*\([^)]*\)\s*\{")
    path.write_text(head.sub(lambda found: found[0] + group, text, count=1), encoding="latin-1")
    return path


def _clock(netlist: Netlist, wires: WireLoad | None = None) -> float:
    """Return the maximum frequency of a netlist in MHz."""
    timing = analyse(netlist, wires=wires)
    if not timing:
        raise UserError(MISSING)
    if not timing.fmax_mhz:
        raise UserError(f"recipes need a design with a path, but {netlist.top} has none")
    return round(timing.fmax_mhz, 2)


def measure_unit(unit: str, library: Library) -> tuple[str, list[Clocks]]:
    """Measure a unit, written ``top:preset``; write ``recipes.json``, return its title and clocks.

    Raises
    ------
    UserError
        If the unit or the preset does not exist, or by `measure_recipes`.
    """
    entry, preset = named_unit(unit)
    top, home = entry.top, BUILD / entry.top / preset
    verilog = emit_unit(entry, preset, sources=True).verilog
    clocks = measure_recipes(verilog, top, library, home / "recipes" / library.name)
    load = default_wire_load(library)
    figures = {
        "top": top,
        "preset": preset,
        "verilog_digest": verilog_digest(verilog),
        "liberty": library.name,
        "liberty_digest": library.digest,
        "wire_load": load.title if load else None,
        "recipes": [asdict(item) for item in clocks],
        "tools": tool_versions(),
    }
    replace_text(home / "recipes.json", json.dumps(figures, indent=1) + "\n")
    return f"{top} / {preset}", clocks


@click.command()
@click.option("--liberty", help="Cell library, .lib or .lib.gz; OSU018 if absent.")
@click.argument("units", nargs=-1, required=True)
def main(liberty: str | None, units: tuple[str, ...]) -> None:
    """Measure the recipes of UNITS, each written top:preset."""
    try:
        library = find_library(liberty)
        load = default_wire_load(library)
        default = "default wire load" if load else "without wires"
        columns = ("unit", "recipe", default, "with wires", "sized with wires")
        table = Table(*columns, title=f"MHz, {library.name}")
        for unit in units:
            title, clocks = measure_unit(unit, library)
            for item in clocks:
                mhz = (item.default_mhz, item.wired_mhz, item.resized_mhz)
                table.add_row(title, item.recipe, *(f"{clock:,.0f}" for clock in mhz))
                title = ""
        Console().print(table)
    except UserError as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main()
