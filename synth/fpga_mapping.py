"""Mapping of Verilog to an FPGA's cells, flat or, for a large design, module by module."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hdl.yosys import run_yosys
from synth.asic import read_commands, script
from synth.harness import HARNESS

FLATTEN_LIMIT = 800_000
"""Maximum number of wire bits of a design that is flattened; a larger one would take hours."""


def map_to_device(
    verilog: Sequence[Path], top: str, family: str, work: Path
) -> tuple[dict[str, int], bool]:
    """Return the number of cells of each type, and whether the design was mapped flat.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog.
    top : str
        The design.
    family : str
        ``ecp5``, which is always mapped flat, or ``xcup``; also the name of the mapping script.
    work : Path
        Folder for the tools' files.

    Raises
    ------
    YosysError
        If the design cannot be mapped.
    """
    read = read_commands(verilog, work)
    modules: list[str] = []  # Modules that are mapped separately; none if the design is flattened.
    if family == "xcup":
        names, bits = _modules(read, top, work)
        if bits > FLATTEN_LIMIT:
            modules = names
    luts = _each_separately(modules) or script("xcup_luts.ys", module=top, stat=f"{top}.stat.json")
    passes = script(
        f"{family}.ys",
        read=read,
        top=top,
        harness=HARNESS,
        harness_file=f"{HARNESS}.v",
        flatten="" if modules else "-flatten",
        map_luts="\n".join(luts),
    )
    run_yosys(passes, directory=work, log=work / "yosys.log")
    if not modules:
        return mapped_cells(work / f"{top}.stat.json", top), True
    each = {
        name: mapped_cells(work / f"{number}.stat.json", name)
        for number, name in enumerate(modules)
    }
    return dict(_total(top, each)), False


def _modules(read: str, top: str, work: Path) -> tuple[list[str], int]:
    """Return the names of all modules, and the number of wire bits over all instances."""
    run_yosys(script("width.ys", read=read, top=top), directory=work, log=work / "width.log")
    found = json.loads((work / f"{top}.width.json").read_text())
    return [name.removeprefix("\\") for name in found["modules"]], found["design"]["num_wire_bits"]


def _each_separately(modules: list[str]) -> list[str]:
    """Return commands that map the LUTs of each module, with the other modules as black boxes.

    Otherwise ABC9 would process the whole design for each of its modules.
    """
    commands = ["design -save mapped", "blackbox", "design -save empty"] if modules else []
    for number, name in enumerate(modules):
        commands += [
            "design -load empty",
            f"delete ={name}",
            f"design -copy-from mapped -as {name} {name}",
            *script("xcup_luts.ys", module=name, stat=f"{number}.stat.json"),
        ]
    return commands


def mapped_cells(statistics: Path, module: str) -> dict[str, int]:
    """Read the number of a module's cells by type."""
    found = json.loads(statistics.read_text())["modules"]
    return {
        name.removeprefix("\\"): number
        for name, number in found[f"\\{module}"]["num_cells_by_type"].items()
        if not name.startswith("$scopeinfo")
    }


def _total(module: str, each: dict[str, dict[str, int]]) -> Counter[str]:
    """Return the total cells of a module and of its submodules."""
    total: Counter[str] = Counter()
    for cell, number in each[module].items():
        below = _total(cell, each) if cell in each else {cell: 1}
        for name, count in below.items():
            total[name] += number * count
    return total
