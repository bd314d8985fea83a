"""Simulate the netlist: the mapped design and models of the library's cells, as Verilog sources."""

from pathlib import Path

from hdl.yosys import run_yosys
from synth.asic import elaborate, map_to_cells
from synth.liberty import Library
from synth.mapped_design import Netlist


def netlist_sources(netlist: Netlist, directory: Path) -> list[Path]:
    """Write what simulates in place of the RTL and return the sources.

    The cell models are made from the functions in the liberty file, for the cells that the netlist
    uses. Delays are not simulated. Flip-flops start unknown and become known by reset, as the
    RTL's do; memories are behavioural modules inside the netlist.

    Parameters
    ----------
    netlist : Netlist
        A netlist mapped with any library.
    directory : Path
        Where the two files go.

    Returns
    -------
    list[Path]
        ``cells.v`` and the netlist, which has the design's own top module.
    """
    directory.mkdir(parents=True, exist_ok=True)
    cells = directory / "cells.v"
    used = sorted(netlist.cell_counts)
    passes = [
        f'read_liberty -overwrite -ignore_miss_func -ignore_miss_dir "{netlist.library.path}"',
        "proc",
        "opt_clean",
        f"select {' '.join(used)}" if used else "select -none",
        f"write_verilog -noattr -selected {cells.name}",
    ]
    run_yosys(passes, directory=directory)
    design = directory / f"{netlist.top}.v"
    design.write_text(netlist.verilog.read_text())
    return [cells, design]


def mapped_sources(
    verilog: list[Path], top: str, library: Library, directory: Path, *, flatten: bool = False
) -> list[Path]:
    """Map a design and return the sources that simulate in place of the RTL.

    Parameters
    ----------
    verilog : list[Path]
        The emitted Verilog.
    top : str
        The top module.
    library : Library
        The cells.
    directory : Path
        Where the mapper's files and the sources go.
    flatten : bool
        Whether to dissolve the modules first; a large design is mapped much faster without.

    Raises
    ------
    UserError
        If the design has a structural fault.
    """
    netlist = map_to_cells(elaborate(verilog, top, directory, flatten=flatten), library)
    return netlist_sources(netlist, directory)
