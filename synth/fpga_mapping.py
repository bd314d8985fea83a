"""Mapping of Verilog to an FPGA's cells, flat or, for a large design, module by module."""

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hdl.yosys import run_yosys
from synth.asic import SCRIPTS, read_commands, script
from synth.harness import HARNESS

CELLS = SCRIPTS / "xcup_cells.v"
"""Modules of an UltraScale+ device that Yosys replaces by these cells before it maps the others."""

FLATTEN_LIMIT = 800_000
"""Maximum number of wire bits of a design that is flattened; a larger one would take hours."""


def map_to_device(
    verilog: Sequence[Path], top: str, family: str, work: Path
) -> tuple[dict[str, int], bool]:
    """Return the number of cells of each type, and whether the design was mapped flat.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog, one module per file.
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
    if family == "xcup":
        names, bits = _modules(read, top, work)
        if bits > FLATTEN_LIMIT:
            texts = {
                name: (file, text)
                for file in verilog
                for text in [file.read_text()]
                for name in re.findall(r"^module (\w+)", text, flags=re.MULTILINE)
            }
            each = {name: _map_alone(name, texts, work) for name in names}
            return dict(_total(top, each)), False
    _map(family, read, top, work, flatten="-flatten")
    return mapped_cells(work / f"{top}.stat.json", top), True


def _map(family: str, read: str, top: str, work: Path, *, flatten: str) -> None:
    """Map a design, or one module of it, and write its statistics."""
    passes = script(
        f"{family}.ys",
        read=read,
        cells=shlex.quote(os.path.relpath(CELLS, work)),
        top=top,
        harness=HARNESS,
        harness_file=f"{HARNESS}.v",
        flatten=flatten,
    )
    run_yosys(passes, directory=work, log=work / f"{top}.log")


def _modules(read: str, top: str, work: Path) -> tuple[list[str], int]:
    """Return the modules that Yosys maps, and the number of wire bits over all instances."""
    run_yosys(script("width.ys", read=read, top=top), directory=work, log=work / "width.log")
    found = json.loads((work / f"{top}.width.json").read_text())
    replaced = re.findall(r"^module (\w+)", CELLS.read_text(), flags=re.MULTILINE)
    names = [name.removeprefix("\\") for name in found["modules"]]
    return [name for name in names if name not in replaced], found["design"]["num_wire_bits"]


def _map_alone(name: str, texts: Mapping[str, tuple[Path, str]], work: Path) -> dict[str, int]:
    """Map one module, with its submodules as black boxes, and return its cells.

    Parameters
    ----------
    name : str
        The module.
    texts : Mapping[str, tuple[Path, str]]
        File and text of every module.
    work : Path
        Folder for the tools' files.
    """
    own, text = texts[name]
    words = set(re.findall(r"\w+", text))
    boxes = [file for other, (file, _text) in texts.items() if other in words and other != name]
    below = read_commands(boxes, work).replace("read_verilog", "read_verilog -lib")
    _map("xcup", f"{below}\n{read_commands([own], work)}", name, work, flatten="")
    return mapped_cells(work / f"{name}.stat.json", name)


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
