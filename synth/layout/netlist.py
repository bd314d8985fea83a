"""The netlist of a layout: cells, nets and ports with names that DEF, SPEF and Verilog share.

The ports of a bus are single ports, `data[3]` is `data_3`. Memories and constants are not part of
the layout: each bit that connects to one becomes a port of the layout, which the result lists.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hdl.errors import UserError
from synth.liberty import Library
from synth.mapped_design import Netlist

_CONSTANTS = {"0": "constant_zero", "1": "constant_one"}


@dataclass(kw_only=True)
class Instance:
    """One cell.

    Parameters
    ----------
    name, kind : str
        Name of the cell, and its cell of the library.
    nets : dict[str, str]
        The net at each pin.
    source : str
        Source file of a register, empty for other cells.
    """

    name: str
    kind: str
    nets: dict[str, str]
    source: str = ""


@dataclass(kw_only=True)
class LayoutNetlist:
    """The cells, ports and nets of a layout.

    Parameters
    ----------
    top : str
        Name of the design.
    library : Library
        The cells.
    cells : dict[str, Instance]
        Cells by name.
    ports : dict[str, tuple[str, str]]
        Direction, ``input`` or ``output``, and net of each port.
    aliases : dict[str, str]
        Ports without a pin on the die, and the port of the same net: the router takes one port a
        net.
    cut : dict[str, list[str]]
        The ports in place of each memory and constant.
    """

    top: str
    library: Library
    cells: dict[str, Instance] = field(default_factory=dict)
    ports: dict[str, tuple[str, str]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    cut: dict[str, list[str]] = field(default_factory=dict)

    def pins(self) -> dict[str, list[tuple[str, str]]]:
        """Return the pins of each net: cell and pin, or ``PIN`` and port."""
        nets: dict[str, list[tuple[str, str]]] = {}
        for port, (_, net) in self.ports.items():
            nets.setdefault(net, []).append(("PIN", port))
        for cell in self.cells.values():
            for pin, net in cell.nets.items():
                nets.setdefault(net, []).append((cell.name, pin))
        return nets

    def drives(self, owner: str, pin: str) -> bool:
        """Return whether a pin or port of `pins` drives its net."""
        if owner == "PIN":
            return self.ports[pin][0] == "input"
        outputs = self.library.cells[self.cells[owner].kind].outputs
        return any(output.name == pin for output in outputs)

    def clock_pins(self) -> list[tuple[str, str]]:
        """Return the clock pins of all flip-flops that the port `clk` drives."""
        net = self.ports.get("clk", ("", ""))[1]
        return [
            (cell.name, pin)
            for cell in self.cells.values()
            if self.library.cells[cell.kind].state
            for pin, connected in cell.nets.items()
            if connected == net
        ]

    def verilog(self) -> str:
        """Return the netlist as structural Verilog."""
        lines = [f"module {self.top} ({', '.join(self.ports)});"]
        lines += [f"  {direction} {port};" for port, (direction, _) in self.ports.items()]
        nets = {net for cell in self.cells.values() for net in cell.nets.values()}
        lines += [f"  wire {net};" for net in sorted(nets - set(self.ports))]
        for cell in self.cells.values():
            pins = ", ".join(f".{pin}({net})" for pin, net in cell.nets.items())
            lines.append(f"  {cell.kind} {cell.name} ({pins});")
        return "\n".join([*lines, "endmodule", ""])


def read_netlist(netlist: Netlist) -> LayoutNetlist:
    """Return the layout's netlist of a flat mapped design.

    Raises
    ------
    UserError
        If the mapped design has modules, or two ports whose names become equal.
    """
    module = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())["modules"]
    design = LayoutNetlist(top=netlist.top, library=netlist.library)
    top = module[netlist.top]
    memories = {memory.module: memory for memory in netlist.memories}
    names: dict[int | str, str] = {}

    def add(port: str, direction: str, bit: int | str) -> None:
        if port in design.ports or port in design.aliases:
            raise UserError(f"{netlist.top} must not have two ports with the name {port}")
        if bit in names:
            design.aliases[port] = names[bit]
        else:
            names[bit] = port
            design.ports[port] = (direction, port)

    # The first port of a net names it: an input, so that no input is an alias.
    for direction in ("input", "output"):
        for name, port in top["ports"].items():
            if port["direction"] == direction:
                for suffix, bit in _bits(port["bits"]):
                    if isinstance(bit, str):
                        design.cut.setdefault(_CONSTANTS[bit], []).append(f"{name}{suffix}")
                    else:
                        add(f"{name}{suffix}", direction, bit)
    blocks = [cell for cell in top["cells"].values() if cell["type"] in memories]
    for index, block in enumerate(blocks):
        ports = module[block["type"]]["ports"]
        title = memories[block["type"]].name
        # What a memory drives is an input of the layout.
        for direction, inside in (("input", "output"), ("output", "input")):
            for name, bits in block["connections"].items():
                if ports[name]["direction"] != inside:
                    continue
                for suffix, bit in _bits(bits):
                    plain = re.sub(r"\W", "_", name.lstrip("\\"))
                    port = f"memory{index}_{plain}{suffix}"
                    if isinstance(bit, int):
                        add(port, direction, bit)
                        design.cut.setdefault(title, []).append(names[bit])
    for name, cell in top["cells"].items():
        kind = cell["type"]
        if kind in memories:
            continue
        if kind not in netlist.library.cells:
            raise UserError(f"a layout needs a flat netlist, but {netlist.top} has module {kind}")
        nets: dict[str, str] = {}
        for pin, bits in cell["connections"].items():
            (bit,) = bits
            if isinstance(bit, str):
                if bit not in names:
                    add(_CONSTANTS[bit], "input", bit)
                    design.cut.setdefault(_CONSTANTS[bit], [])
                design.cut[_CONSTANTS[bit]].append(f"{name}/{pin}")
            names.setdefault(bit, f"n{bit}")
            nets[pin] = names[bit]
        own = re.sub(r"\W", "_", name)
        if own in design.cells:
            raise UserError(f"{netlist.top} must not have two cells with the name {own}")
        sources = cell["attributes"].get("src", "").split("|")
        source = next((text for text in sources if text.startswith("hdl/")), "")
        design.cells[own] = Instance(
            name=own, kind=kind, nets=nets, source=source.partition(":")[0]
        )
    return design


def _bits(bits: list[Any]) -> Iterator[tuple[str, int | str]]:
    """Yield the suffix of each bit's name, and the bit."""
    for index, bit in enumerate(bits):
        yield (f"_{index}" if len(bits) > 1 else ""), bit
