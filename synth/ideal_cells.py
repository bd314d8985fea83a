"""Ideal cells for OpenSTA: memories, and constants if the library has no cells for them.

Each memory is a block without delay.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synth.mapped_design import Netlist

CONSTANTS = {0: ("constant_zero", "Z"), 1: ("constant_one", "Z")}
"""Cell and pin of each constant in OpenSTA's netlist, unless the library has such cells."""

_BACKSLASH = "\\"


def write_ideal_cells(netlist: Netlist) -> list[Path]:
    """Write the liberty files of a netlist's ideal cells, and return those that it needs."""
    files = _write_memories(netlist)
    if not netlist.library.ties:
        files.append(netlist.directory / f"{netlist.stem}.constants.lib")
        cells = [
            f"  cell ({cell}) {{ area : 0; "
            f'pin ({pin}) {{ direction : output; function : "{value}"; }} }}'
            for value, (cell, pin) in CONSTANTS.items()
        ]
        files[-1].write_text("\n".join([*liberty_header("constants"), *cells, "}", ""]))
    return files


def hide_constants(netlist: Netlist, libraries: Sequence[Path]) -> tuple[list[Path], str]:
    """Return liberty files in which no cell is constant, and commands that set their outputs.

    If constants of one module block logic of another, OpenSTA 2.0.17 may append to the queue that
    it iterates over while it propagates activities by level, and crashes when the queue is
    reallocated. Constant cells therefore lose their function, and commands set their activities
    like those of inputs.
    """
    hidden: list[Path] = []
    for library in libraries:
        text = library.read_text(errors="replace")
        hidden.append(netlist.directory / f"{netlist.stem}.hidden.{library.name}")
        hidden[-1].write_text(re.sub(r'\bfunction\s*:\s*"[01]"\s*;', "", text))
    ties = (netlist.library.ties or CONSTANTS).items()
    cells = " ".join(f"{cell} {pin} {value}" for value, (cell, pin) in ties)
    return hidden, f"constant_cells {{{cells}}}"


def _write_memories(netlist: Netlist) -> list[Path]:
    """Write a liberty file in which every memory is a block without delay."""
    if not netlist.memories:
        return []
    design = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())["modules"]
    instances = {
        cell["type"]: (parent, cell["connections"])
        for parent in design.values()
        for cell in parent["cells"].values()
    }
    lines = liberty_header("memories")
    cells: list[str] = []
    plain = _name_memory_ports(netlist, design)
    for memory in netlist.memories:
        ports = design[memory.module]["ports"]
        parent, connections = instances[memory.module]
        clock = next(name for name in ports if connections[name] == parent["ports"]["clk"]["bits"])
        inputs = [name for name, port in ports.items() if port["direction"] == "input"]
        origins = [clock] if memory.synchronous else [name for name in inputs if name != clock]
        cells.append(f"  cell ({memory.module}) {{\n    area : 0;\n    is_macro_cell : true;")
        for name, port in ports.items():
            width = len(port["bits"])
            pin = plain[memory.module, name]
            kind = f"{memory.module}_{pin}"
            if width > 1:
                lines.append(
                    f"  type ({kind}) {{ base_type : array; data_type : bit; bit_width : {width}; "
                    f"bit_from : {width - 1}; bit_to : 0; downto : true; }}"
                )
            cells.append(f"    {'bus' if width > 1 else 'pin'} ({pin}) {{")
            if width > 1:
                cells.append(f"      bus_type : {kind};")
            cells.append(f"      direction : {port['direction']};")
            if name == clock:
                cells.append("      clock : true;")
            elif name in inputs:
                cells.append(_memory_arc(plain[memory.module, clock], "setup_rising", "constraint"))
            else:
                edge = "rising_edge" if memory.synchronous else "combinational"
                cells += [
                    _memory_arc(plain[memory.module, origin], edge, "transition")
                    for origin in origins
                ]
            cells.append("    }")
        cells.append("  }")
    path = netlist.directory / f"{netlist.stem}.memories.lib"
    path.write_text("\n".join([*lines, *cells, "}", ""]))
    return [path]


def liberty_header(name: str) -> list[str]:
    """Return the first lines of a library in ps, fF and kohm."""
    lines = [f"library ({name}) {{", '  time_unit : "1ps";', "  capacitive_load_unit (1, ff);"]
    lines += ['  pulling_resistance_unit : "1kohm";']
    lines += ["  delay_model : table_lookup;", "  nom_voltage : 1;"]
    for edge in ("rise", "fall"):
        lines += [f"  {side}_threshold_pct_{edge} : 50;" for side in ("input", "output")]
        lines += [f"  slew_lower_threshold_pct_{edge} : 20;"]
        lines += [f"  slew_upper_threshold_pct_{edge} : 80;"]
    return lines


def _name_memory_ports(netlist: Netlist, design: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Rename the memories' ports in OpenSTA's netlist to names that are legal in liberty."""
    file = netlist.directory / f"{netlist.stem}.sta.v"
    text = file.read_text()
    names = {
        (memory.module, port): f"port_{index}"
        for memory in netlist.memories
        for index, port in enumerate(design[memory.module]["ports"])
    }

    # In JSON, Yosys keeps the backslash of a name such as \$signal and omits that of other names.
    spelled = {(module, port.lstrip(_BACKSLASH)): name for (module, port), name in names.items()}

    def rename(connection: re.Match[str]) -> str:
        port = connection[1].strip().lstrip(_BACKSLASH)
        return f".{spelled.get((module, port), port)}("

    for module in (memory.module for memory in netlist.memories):
        text = re.sub(
            rf"^  {re.escape(module)} (?:\\\S+ |\w+) \(\n.*?^  \);",
            lambda instance: re.sub(r"\.(\\\S+ |\w+)\(", rename, instance[0]),
            text,
            flags=re.M | re.S,
        )
    file.write_text(text)
    return names


def _memory_arc(origin: str, kind: str, table: str) -> str:
    """Return one timing arc of a memory pin, without delay."""
    names = [f"rise_{table}", f"fall_{table}"]
    if table == "transition":
        names += ["cell_rise", "cell_fall"]
    tables = " ".join(f'{name} (scalar) {{ values ("0"); }}' for name in names)
    return f'      timing () {{ related_pin : "{origin}"; timing_type : {kind}; {tables} }}'
