"""Mapping of Verilog to a netlist of a cell library's cells, with area and the mapper's delay.

The steps are Yosys and ABC scripts in ``scripts/``. Three recipes map the logic: ``area`` minimises
area, ``speed`` minimises delay, ``balanced`` is between the two. All recipes then buffer nets of
high fan-out and size the cells. ABC does both; for a partly flattened design, whose kept modules
are mapped separately, `synth.buffer_trees` inserts the buffers.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import replace_text
from hdl.yosys import YosysError, run_yosys
from synth.buffer_trees import buffer_trees
from synth.buffering import buffer_modules
from synth.ideal_cells import CONSTANTS
from synth.liberty import Library
from synth.mapped_design import Memory, ModuleArea, Netlist, count_cells
from synth.register_copies import copy_registers
from synth.sizing import size_cells

RELAXED_PS = 1_000_000.0
"""The period for sizing without a target: with it, sizing recovers as much area as possible."""

SCRIPTS = Path(__file__).with_name("scripts")
RECIPES = ("area", "balanced", "speed")
"""The recipes, from area-optimised to delay-optimised."""

LOAD_FF = 10.0
"""Load on an output, in femtofarad, that sizing assumes."""


@dataclass(frozen=True, kw_only=True)
class WordLevel:
    """A design checked and reduced to word-level cells, ready to be mapped.

    Parameters
    ----------
    top : str
        The top module.
    directory : Path
        Folder of the files.
    form : str
        ``hierarchy``, ``flat`` or ``parts``, as in `synth.synthesis.measure_design`; stem of the
        files.
    memories : tuple[Memory, ...]
        The memories, which are not mapped to cells.
    """

    top: str
    directory: Path
    form: str
    memories: tuple[Memory, ...]


def elaborate(
    verilog: Sequence[Path],
    top: str,
    directory: Path,
    *,
    flatten: bool = True,
    kept: Sequence[str] | None = None,
    memories_as_flops: bool = False,
) -> WordLevel:
    """Read a design, reject structural faults, and reduce it to word-level cells.

    Parameters
    ----------
    verilog : Sequence[Path]
        The design.
    top : str
        Its top module.
    directory : Path
        Folder for the netlist and the tools' files.
    flatten : bool
        Whether to flatten the modules; otherwise each module is mapped separately.
    kept : Sequence[str], optional
        Modules that are not flattened into their parents, while their own submodules are; faults
        across them are not detected. With a sequence, also an empty one, the buffers and sizes of
        `map_to_cells` are those of the whole design, without it those of ABC.
    memories_as_flops : bool
        Whether to map memories to flip-flops and multiplexers.

    Raises
    ------
    UserError
        If the design has a latch, two drivers on one wire or a combinational loop.
    """
    directory.mkdir(parents=True, exist_ok=True)
    form = ("flat" if kept is None else "parts") if flatten else "hierarchy"
    passes = script(
        "coarse.ys",
        read=read_commands(verilog, directory),
        top=top,
        name=form,
        modules=_modules(form, kept or ()),
        memories="memory_map" if memories_as_flops else "memory_map -rom-only",
    )
    log = directory / f"{form}.log"
    try:
        run_yosys(passes, directory=directory, log=log)
    except YosysError as error:
        raise UserError(_fault(top, log.read_text()) or str(error)) from error
    design = json.loads((directory / f"{form}.memories.json").read_text())
    memories: list[Memory] = []
    for module, content in design["modules"].items():
        for name, cell in content["cells"].items():
            words, width, reads, writes = (
                int(cell["parameters"][key], 2) for key in ("SIZE", "WIDTH", "RD_PORTS", "WR_PORTS")
            )
            memories.append(
                Memory(
                    name=f"{module}/{name}",
                    module=f"{module}_memory{len(memories)}",
                    words=words,
                    width=width,
                    read_ports=reads,
                    write_ports=writes,
                    synchronous="0" not in cell["parameters"]["RD_CLK_ENABLE"][-reads:],
                )
            )
    return WordLevel(top=top, directory=directory, form=form, memories=tuple(memories))


def map_to_cells(
    design: WordLevel, library: Library, *, recipe: str = "area", target_ps: float | None = None
) -> Netlist:
    """Map a design to a library's cells.

    Parameters
    ----------
    design : WordLevel
        The design.
    library : Library
        The cells.
    recipe : str
        One of `RECIPES`, or ``plain``, which is Yosys's own script without sizing.
    target_ps : float, optional
        Target delay of the logic between registers for sizing. Without it, ``speed`` minimises
        delay and the other recipes minimise area.
    """
    directory, name = design.directory, f"{design.form}.{recipe}"
    _write_abc_files(design, library, recipe, target_ps)
    passes = script(
        "fine.ys",
        top=design.top,
        design=design.form,
        name=name,
        liberty=str(library.path),
        recipe=f"{recipe}.script",
        dont_use=" ".join(f"-dont_use {cell}" for cell in library.dont_use),
        memories="\n".join(
            f'setattr -set submod "{_submodule(memory)}" {_escaped(memory.name)}'
            for memory in design.memories
        ),
        ties=f"{_map_constants(library.ties)} t:$mem_v2 %m %n" if library.ties else "",
    )
    output = run_yosys(passes, directory=directory, log=directory / f"{name}.log")
    delays = [float(delay) for delay in re.findall(r"ABC: .*Delay = +([\d.]+) ps", output)]
    if recipe in RECIPES:
        mapped = directory / f"{name}.mapped.json"
        contents = json.loads(mapped.read_text())
        if design.form == "parts":
            if recipe == RECIPES[-1]:
                copy_registers(contents, library)
            buffer_trees(contents, library, recipe)
            sizing = _sizing(recipe, target_ps, wires=True)
            delays = [size_cells(contents, library, directory, sizing)]
        else:
            buffer_modules(contents, library)
        mapped.write_text(json.dumps(contents))
    modules, memories, counts = write_netlist(design.top, name, library, directory, design.memories)
    return Netlist(
        top=design.top,
        library=library,
        recipe=recipe,
        target_ps=target_ps,
        directory=directory,
        stem=name,
        modules=modules,
        memories=memories,
        abc_delay_ps=max(delays, default=0.0),
        cell_counts=counts,
    )


def write_netlist(
    top: str, stem: str, library: Library, directory: Path, memories: tuple[Memory, ...]
) -> tuple[tuple[ModuleArea, ...], tuple[Memory, ...], dict[str, int]]:
    """Write the netlist of a mapped design as Verilog, for OpenSTA, and as JSON.

    Parameters
    ----------
    top : str
        The top module.
    stem : str
        Name of the mapped design, ``<stem>.mapped.json``, and of the files.
    library : Library
        The cells.
    directory : Path
        Folder of the files.
    memories : tuple[Memory, ...]
        The design's memories.

    Returns
    -------
    tuple
        Modules, memories and numbers of cells, as `count_cells`.
    """
    passes = script(
        "netlist.ys",
        top=top,
        name=stem,
        liberty=str(library.path),
        constants="" if library.ties else _map_constants(CONSTANTS),
    )
    run_yosys(passes, directory=directory)
    for netlist in (directory / f"{stem}.v", directory / f"{stem}.sta.v"):
        text = re.sub(r"\b(wire|input|output) signed\b", r"\1", netlist.read_text())
        replace_text(netlist, text)
    statistics = json.loads((directory / f"{stem}.stat.json").read_text())
    return count_cells(statistics, top, library, memories)


def check_period(period_ps: float | None) -> None:
    """Check that the period is None or positive.

    Raises
    ------
    UserError
        If the period is zero or negative.
    """
    if period_ps is not None and not period_ps > 0:
        raise UserError(f"PERIOD must be a positive number of picoseconds, not {period_ps:g}")


def script(file: str, /, **values: str) -> list[str]:
    """Return the commands of a script in ``scripts/``, with its placeholders replaced."""
    text = (SCRIPTS / file).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_commands(verilog: Sequence[Path], directory: Path) -> str:
    """Return the commands that read Verilog files, named relative to a directory."""
    names = (os.path.relpath(path, directory) for path in verilog if path.suffix in (".v", ".sv"))
    return "\n".join(f"read_verilog -sv {shlex.quote(name)}" for name in names)


def tool_versions() -> dict[str, str]:
    """Return the versions of the mapping tools."""
    return {"yosys": f"pyosys {version('pyosys')}"}


def _modules(form: str, kept: Sequence[str]) -> str:
    """Return the commands that flatten modules and check for faults across them."""
    check = ["opt_expr", "opt_clean", "check -assert -nolatches"]
    mark, unmark = (
        [f"setattr -mod {change} {_escaped(name)}" for name in kept]
        for change in ("-set keep_hierarchy 1", "-unset keep_hierarchy")
    )
    return "\n".join(
        {
            "flat": ["flatten", *check],
            # The check uses a flat copy of the design, which is then discarded.
            "hierarchy": ["design -save all", "flatten", *check, "design -load all"],
            "parts": [*mark, "flatten", *unmark, *check],
        }[form]
    )


def _write_abc_files(
    design: WordLevel, library: Library, recipe: str, target_ps: float | None
) -> None:
    """Write ABC's input files: the recipe with sizing, and the environment of the logic."""
    directory = design.directory
    lines = script(f"{recipe}.abc")
    # In the form `parts`, `buffer_trees` inserts buffers across modules before sizing.
    if recipe in RECIPES and design.form != "parts":
        lines += [*script("buffer.abc"), *_sizing(recipe, target_ps)]
    (directory / f"{recipe}.script").write_text("\n".join(lines) + "\n")
    driver = library.buffer or library.inverter
    load = LOAD_FF / library.capacitance_unit_ff
    lines = [f"set_driving_cell {driver.name}"] if driver else []
    (directory / "abc.constr").write_text("\n".join([*lines, f"set_load {load:g}", ""]))


def _sizing(recipe: str, target_ps: float | None, *, wires: bool = False) -> list[str]:
    """Return ABC's commands that size the cells, with the library's default wire load or without.

    Inside Yosys, ABC has no wire loads: Yosys gives it a library of cells only.
    """
    target = target_ps or (None if recipe == RECIPES[-1] else RELAXED_PS)
    file = "size_parts.abc" if wires else "size.abc"
    return script(file, target=f"-D {target:.0f}" if target else "")


def _map_constants(cells: dict[int, tuple[str, str]]) -> str:
    """Return the command that maps all constants to cells."""
    ties = (f"-{'hi' if value else 'lo'}cell {' '.join(cells[value])}" for value in (0, 1))
    return f"hilomap -singleton {' '.join(ties)}"


def _fault(top: str, log: str) -> str | None:
    """Return the message for a structural fault of the design; None if there is none."""
    faults = (
        (r"found logic loop|logic loop in module", "combinational loop"),
        (r"multiple conflicting drivers", "wire with two drivers"),
        (r"[Ll]atch", "latch"),
        (r"is used but has no driver", "wire without a driver"),
    )
    warnings = [line for line in log.splitlines() if line.startswith("Warning: ")]
    for pattern, fault in faults:
        for line in warnings:
            if re.search(pattern, line):
                return f"TOP={top} must have no {fault}: {line.removeprefix('Warning: ')}"
    return None


def _submodule(memory: Memory) -> str:
    """Return the name for `submod`, which adds the parent as prefix, to get `Memory.module`."""
    return memory.module.removeprefix(memory.name.split("/")[0] + "_")


def _escaped(path: str) -> str:
    """Return ``module/cell`` in the notation of a selection."""
    return path.replace("[", "\\[").replace("]", "\\]")
