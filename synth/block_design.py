"""Vivado's IP package and block designs of an accelerator with the AXI shell.

The package declares each AXI interface, clock, reset and interrupt, the address space of each
master, and all registers. A block design connects the packaged accelerator to the processor and
the memory of a board.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from hdl.emit import Port
from hdl.errors import UserError
from synth.axi_ports import AxiPorts, address_bits, axi_interfaces, data_bits

INTERCONNECT_SLAVES = 16
"""Slave interfaces of a SmartConnect."""

DESIGN = "system"
"""Name of the block design."""

REGISTER_BYTES = 4096
"""Bytes of the registers' address space."""

ACCESS = {
    "read": "read-only",
    "write": "write-only",
    "read, write": "read-write",
    "read, write 1 to clear": "read-write",
}
"""IP-XACT's word for the access to a register or a field."""

WRITTEN = {"read, write 1 to clear": "oneToClear"}
"""IP-XACT's word for the effect of a write, if it is not that the value is stored."""


@dataclass(frozen=True, kw_only=True)
class BlockBoard:
    """A board with a block design.

    Parameters
    ----------
    name : str
        Name of the script; ``vivado_<name>.tcl`` of the templates is the part of this board.
    title, part, board_part : str
        Name for a reader, device, and pattern of the board's name in Vivado.
    ports, most_groups : int
        Groups into which the masters are divided, if there are so many masters; more groups are
        used if a SmartConnect has too few slave interfaces, but at most `most_groups`.
    register_offset : int
        Address of the registers, as the host's master sees it.
    memory_bytes : int
        Memory that the masters can access, from address 0.
    """

    name: str
    title: str
    part: str
    board_part: str
    ports: int
    most_groups: int
    register_offset: int
    memory_bytes: int

    def groups(self, masters: Sequence[str]) -> list[list[str]]:
        """Divide the masters into groups with a SmartConnect each, in turn.

        Raises
        ------
        UserError
            If there are too many masters.
        """
        most = self.most_groups * INTERCONNECT_SLAVES
        if len(masters) > most:
            raise UserError(
                f"a block design of the {self.title} must have at most {most} AXI4 masters, "
                f"not {len(masters)}"
            )
        needed = ceil(len(masters) / INTERCONNECT_SLAVES)
        count = max(needed, min(self.ports, len(masters)))
        return [list(masters[first::count]) for first in range(count)]


BOARDS = (
    BlockBoard(
        name="zcu102",
        title="ZCU102",
        part="xczu9eg-ffvb1156-2-e",
        board_part="*:zcu102:part0:*",
        ports=4,
        most_groups=4,
        register_offset=0xA000_0000,
        memory_bytes=1 << 31,
    ),
    BlockBoard(
        name="u250",
        title="Alveo U250",
        part="xcu250-figd2104-2L-e",
        board_part="*:au250:part0:*",
        ports=1,
        most_groups=INTERCONNECT_SLAVES - 1,
        register_offset=0,
        memory_bytes=1 << 34,
    ),
)


def axi_package(ports: Sequence[Port], manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the template ``vivado_axi.tcl``.

    Parameters
    ----------
    ports : Sequence[Port]
        The ports of an accelerator with the AXI shell.
    manifest : Mapping[str, Any]
        Its manifest.
    """
    interfaces = axi_interfaces(ports)
    masters = {name: one for name, one in interfaces.items() if name.startswith("m_axi")}
    return {
        "interfaces": ":".join(interfaces),
        "masters": "\n".join(
            line for name, one in masters.items() for line in _master(name, one, manifest)
        ),
        "slave": "\n".join(_port_maps(interfaces["s_axi"])),
        "registers": "\n".join(
            line for one in manifest["register_map"]["registers"] for line in _register(one)
        ),
        "register_bytes": str(REGISTER_BYTES),
    }


def board_values(
    board: BlockBoard, ports: Sequence[Port], *, top: str, version: str, period_ps: float
) -> dict[str, str]:
    """Return the values of the templates of a board's block design.

    Parameters
    ----------
    board : BlockBoard
        The board.
    ports : Sequence[Port]
        The ports of an accelerator with the AXI shell.
    top, version : str
        Name and version of the package.
    period_ps : float
        Clock period in ps.

    Raises
    ------
    UserError
        If the accelerator has too many masters for the board.
    """
    masters = {n: one for n, one in axi_interfaces(ports).items() if n.startswith("m_axi")}
    words = {name: f"{{{name} {_direction(one)}}}" for name, one in masters.items()}
    groups = [[words[name] for name in group] for group in board.groups(list(masters))]
    reachable = 1 << min(map(address_bits, masters.values()))
    return {
        "board": board.name,
        "title": board.title,
        "part": board.part,
        "board_part": board.board_part,
        "design": DESIGN,
        "top": top,
        "version": version,
        "clock_mhz": f"{1e6 / period_ps:.6g}",
        "register_offset": f"{board.register_offset:#x}",
        "register_bytes": str(REGISTER_BYTES),
        "memory_bytes": str(min(board.memory_bytes, reachable)),
        "groups": "\n".join(f"    {{{' '.join(group)}}}" for group in groups),
    }


def _direction(members: AxiPorts) -> str:
    """Return whether a master reads or writes."""
    return "READ" if "arvalid" in members else "WRITE"


def _master(name: str, members: AxiPorts, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a master: name, range, bits of a beat, ports, parameters."""
    direction = _direction(members)
    parameters = {
        "PROTOCOL": "AXI4",
        "READ_WRITE_MODE": f"{direction}_ONLY",
        "MAX_BURST_LENGTH": manifest["parameters"]["burst_beats"],
        f"NUM_{direction}_OUTSTANDING": manifest["parameters"]["outstanding"],
        "SUPPORTS_NARROW_BURST": 0,
    }
    yield f"    {name} {1 << address_bits(members)} {data_bits(members)} {{"
    yield from (f"    {line}" for line in _port_maps(members))
    yield f"    }} {{{' '.join(f'{key} {value}' for key, value in parameters.items())}}}"


def _port_maps(members: AxiPorts) -> Iterator[str]:
    """Yield a line per port: its logical and its physical name."""
    return (f"    {signal.upper()} {port.name}" for signal, port in members.items())


def _register(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a register: name, offset, access, meaning, fields."""
    head = f"    {one['name']} {one['offset']:#05x} {ACCESS[one['access']]} {{{one['meaning']}}}"
    if not one["fields"]:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    for part in one["fields"]:
        access, written = ACCESS[part["access"]], WRITTEN.get(part["access"], "")
        yield (
            f"        {part['name']} {part['first']} {part['width']} {access} {{{written}}} "
            f"{{{part['meaning']}}}"
        )
    yield "    }"
