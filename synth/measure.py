"""Fast measurement of one unit or operator: area and delay for every recipe, in one table.

``python -m synth.measure --liberty FILE 'hdl.arith.float_add:FloatAdd(...)'`` builds, emits and
maps the unit flat, and prints its costs. ``plain`` is Yosys's own script without sizing, which was
also used for the other projects' circuits in ``synth/reference/peers.toml``.
"""

import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hdl.arith import float_format
from hdl.emit import Emission, write_verilog
from hdl.errors import UserError
from hdl.unit import Unit
from synth.asic import elaborate, map_to_cells
from synth.liberty import Library, find_library
from synth.timing import analyse

MEASURED_RECIPES = ("plain", "area", "speed")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Costs of a unit for one recipe.

    Parameters
    ----------
    recipe : str
        ``plain``, ``area`` or ``speed``.
    area_um2, sequential_um2 : float
        Area of all cells, and of the flip-flops.
    nand2_equivalents : float
        The area in two-input NAND gates.
    memory_bits : int
        Bits in memories, which the areas exclude.
    mapper_delay_ps : float
        The longest combinational path by ABC.
    critical_path_ps : float or None
        The longest path by OpenSTA, with clock-to-output and setup; None without OpenSTA.
    """

    recipe: str
    area_um2: float
    sequential_um2: float
    nand2_equivalents: float
    memory_bits: int
    mapper_delay_ps: float
    critical_path_ps: float | None


def measure(
    unit: Unit, library: Library, *, directory: Path, memories_as_flops: bool = False
) -> list[Measurement]:
    """Emit a unit, map it flat with every recipe, and return its costs.

    Parameters
    ----------
    unit : Unit
        The unit.
    library : Library
        The cells.
    directory : Path
        Folder for the files.
    memories_as_flops : bool
        Whether to map memories to flip-flops.
    """
    files = write_verilog(Emission(top=unit, name="measured"), directory / "rtl")
    design = elaborate(files, "measured", directory / "synth", memories_as_flops=memories_as_flops)
    measurements = []
    for recipe in MEASURED_RECIPES if library.timed else ("area",):
        netlist = map_to_cells(design, library, recipe=recipe)
        timing = analyse(netlist)
        critical = timing.critical if timing else None
        measurements.append(
            Measurement(
                recipe=recipe,
                area_um2=netlist.area_um2,
                sequential_um2=netlist.sequential_um2,
                nand2_equivalents=netlist.area_um2 / library.nand2_area,
                memory_bits=netlist.memory_bits,
                mapper_delay_ps=netlist.abc_delay_ps,
                critical_path_ps=critical.length_ps if critical else None,
            )
        )
    return measurements


def build_unit(text: str) -> Unit:
    """Build a unit from ``module:Class(arguments)``.

    The module's names are in scope, and the number formats of `hdl.arith.float_format`.

    Raises
    ------
    UserError
        If the text does not name a unit that can be built.
    """
    module_name, colon, expression = text.partition(":")
    if not colon:
        raise UserError(f"a unit must be written module:Class(arguments), not {text!r}")
    try:
        scope = vars(float_format) | vars(importlib.import_module(module_name))
        unit = eval(expression, scope)
    except Exception as error:
        raise UserError(f"a unit must be one that can be built, not {text!r}: {error}") from error
    if not isinstance(unit, Unit):
        raise UserError(f"a unit must be a Unit of hdl, not {unit!r}")
    return unit


def table(measurements: list[Measurement], library: Library, title: str) -> Table:
    """Return the measurements as a table for the terminal."""
    result = Table(title=f"{title}\n{library.name}, {library.corner}", title_justify="left")
    for column in ("recipe", "area um2", "flops um2", "NAND2", "memory bits", "ABC ps", "STA ps"):
        result.add_column(column, justify="left" if column == "recipe" else "right")
    for item in measurements:
        sta = f"{item.critical_path_ps:.0f}" if item.critical_path_ps is not None else "-"
        result.add_row(
            item.recipe,
            f"{item.area_um2:.1f}",
            f"{item.sequential_um2:.1f}",
            f"{item.nand2_equivalents:.0f}",
            str(item.memory_bits),
            f"{item.mapper_delay_ps:.0f}",
            sta,
        )
    return result


@click.command()
@click.option("--liberty", help="Cell library, .lib or .lib.gz.")
@click.option("--memories-as-flops", is_flag=True, help="Count memories as flip-flops.")
@click.argument("units", nargs=-1, required=True)
def main(liberty: str | None, memories_as_flops: bool, units: tuple[str, ...]) -> None:
    """Measure UNITS, each written module:Class(arguments)."""
    console = Console()
    try:
        library = find_library(liberty)
        for text in units:
            with tempfile.TemporaryDirectory() as scratch:
                measurements = measure(
                    build_unit(text),
                    library,
                    directory=Path(scratch),
                    memories_as_flops=memories_as_flops,
                )
            console.print(table(measurements, library, text))
    except UserError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
