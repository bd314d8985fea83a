"""The AXI4 and AXI4-Lite interfaces among the ports of a module."""

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hdl.emit import Port

AxiPorts: TypeAlias = Mapping[str, Port]
"""The ports of one interface by signal, such as ``arvalid``."""

CHANNEL = re.compile(r"(aw|ar|w|b|r)([a-z]+)")
"""Channel and signal of AXI4 in the last part of a port's path."""


def axi_interfaces(ports: Sequence[Port]) -> dict[str, AxiPorts]:
    """Return the interfaces by name: ``s_axi`` or ``m_axi_<name>``."""
    found: dict[str, dict[str, Port]] = {}
    for port in ports:
        if port.path[0].startswith(("s_axi", "m_axi")) and CHANNEL.fullmatch(port.path[-1]):
            found.setdefault("_".join(port.path[:-1]), {})[port.path[-1]] = port
    return dict(found)


def data_bits(members: AxiPorts) -> int:
    """Return the bits of a beat."""
    return next(members[name].width for name in ("rdata", "wdata") if name in members)


def address_bits(members: AxiPorts) -> int:
    """Return the bits of a byte address."""
    return next(members[name].width for name in ("araddr", "awaddr") if name in members)


def is_full(members: AxiPorts) -> bool:
    """Return whether an interface is AXI4, whose bursts have a length, and not AXI4-Lite."""
    return bool({"arlen", "awlen"} & members.keys())
