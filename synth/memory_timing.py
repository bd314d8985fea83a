"""Memories in timing: a liberty file in which each is a block that takes no time."""

import json
import re
from pathlib import Path
from typing import Any

from synth.mapped_design import Netlist

_BACKSLASH = "\\"


def write_memory_library(netlist: Netlist) -> list[Path]:
    """Write a liberty file in which every memory is a block that takes no time."""
    if not netlist.memories:
        return []
    design = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())["modules"]
    instances = {
        cell["type"]: (parent, cell["connections"])
        for parent in design.values()
        for cell in parent["cells"].values()
    }
    lines = ["library (memories) {", '  time_unit : "1ps";', "  capacitive_load_unit (1, ff);"]
    lines += ["  delay_model : table_lookup;", "  nom_voltage : 1;"]
    for edge in ("rise", "fall"):
        lines += [f"  {side}_threshold_pct_{edge} : 50;" for side in ("input", "output")]
        lines += [f"  slew_lower_threshold_pct_{edge} : 20;"]
        lines += [f"  slew_upper_threshold_pct_{edge} : 80;"]
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


def _name_memory_ports(netlist: Netlist, design: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Rename the memories' ports in OpenSTA's netlist to what liberty can spell."""
    file = netlist.directory / f"{netlist.stem}.sta.v"
    text = file.read_text()
    names = {
        (memory.module, port): f"port_{index}"
        for memory in netlist.memories
        for index, port in enumerate(design[memory.module]["ports"])
    }

    # Yosys keeps the backslash of a name like \$signal in JSON, where it drops that of others.
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
    """Write one timing arc of a memory pin, of no length."""
    names = [f"rise_{table}", f"fall_{table}"]
    if table == "transition":
        names += ["cell_rise", "cell_fall"]
    tables = " ".join(f'{name} (scalar) {{ values ("0"); }}' for name in names)
    return f'      timing () {{ related_pin : "{origin}"; timing_type : {kind}; {tables} }}'
