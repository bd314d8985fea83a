"""Ports of units, without their Verilog."""

from typing import Any

from amaranth.hdl import Value

from hdl.catalog import entry_named
from hdl.emit import Port


def ports_of(top: str, parameters: Any) -> list[Port]:
    """Return the ports of a unit of the catalog with these parameters."""
    unit = entry_named(top).unit(parameters=parameters)
    found = [Port(("clk",), "input", 1), Port(("rst",), "input", 1)]
    for path, member, value in unit.signature.flatten(unit):
        direction = "input" if member.flow.name == "In" else "output"
        found.append(Port(tuple(map(str, path)), direction, len(Value.cast(value))))
    return found
