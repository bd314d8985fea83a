"""Verilog sources for netlist simulation: the mapped design and models of the library's cells."""

from pathlib import Path

from hdl.paths import replace_text
from hdl.yosys import run_yosys
from synth.asic import elaborate, map_to_cells
from synth.liberty import Library
from synth.mapped_design import Netlist


def netlist_sources(netlist: Netlist, directory: Path) -> list[Path]:
    """Write the sources that replace the RTL in simulation, and return their paths.

    Yosys derives the cell models from the functions in the liberty file, for the cells that the
    netlist uses. Models have no delays. Flip-flops are unknown until reset, as in the RTL;
    memories are behavioural modules of the netlist.

    Parameters
    ----------
    netlist : Netlist
        A netlist mapped with any library.
    directory : Path
        Folder of the two files.

    Returns
    -------
    list[Path]
        ``cells.v`` and the netlist, which has the design's own top module.
    """
    directory.mkdir(parents=True, exist_ok=True)
    cells, new = directory / "cells.v", directory / ".cells.v.new"
    used = sorted(netlist.cell_counts)
    passes = [
        f'read_liberty -overwrite -ignore_miss_func -ignore_miss_dir "{netlist.library.path}"',
        "proc",
        "opt_clean",
        f"select {' '.join(used)}" if used else "select -none",
        f"write_verilog -noattr -selected {new.name}",
    ]
    try:
        run_yosys(passes, directory=directory)
        new.replace(cells)
    finally:
        new.unlink(missing_ok=True)
    design = directory / f"{netlist.top}.v"
    replace_text(design, netlist.verilog.read_text())
    return [cells, design]


def mapped_sources(
    verilog: list[Path], top: str, library: Library, directory: Path, *, flatten: bool = False
) -> list[Path]:
    """Map a design and return the sources that replace the RTL in simulation.

    Parameters
    ----------
    verilog : list[Path]
        The emitted Verilog.
    top : str
        The top module.
    library : Library
        The cells.
    directory : Path
        Folder of the mapper's files and of the sources.
    flatten : bool
        Whether to flatten the modules first; mapping of a large design is much faster without.

    Raises
    ------
    UserError
        If the design has a structural fault.
    """
    netlist = map_to_cells(elaborate(verilog, top, directory, flatten=flatten), library)
    return netlist_sources(netlist, directory)
