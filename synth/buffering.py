"""Buffer trees between modules: no net of a mapped design drives more than a few pins.

The mapper buffers what it sees, one module at a time, and takes a port for one load. What a
register or an input port of a module drives inside a hundred others is found here, from the
innermost modules outwards, and gets a tree of buffers in the module where it is spread.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from synth.liberty import Cell, Library

FAN_OUT = 16
"""Pins that a net drives at most, as in the mapper's own buffering."""


Loads = dict[str, list[tuple[int, float]]]
"""By input port and bit of a module: the pins that it drives inside, and the delay from there."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Where a net ends: an entry of a cell's connection, and the pins that it drives there.

    `ahead` is the delay from there on, where somebody wants to know it.
    """

    bits: list[int | str]
    index: int
    pins: int
    ahead: float = 0.0


Sinks = dict[int | str, list[Sink]]
"""By net, in the order of the cells."""


class Buffers:
    """Adds buffers to a module; `added` counts them."""

    def __init__(self, module: dict[str, Any], buffer: Cell) -> None:
        self._cells, self._type = module["cells"], buffer.name
        (self._source,), (self._target,) = buffer.inputs, buffer.outputs
        places = (*module["ports"].values(), *module["netnames"].values())
        bits = (bit for place in places for bit in place["bits"] if isinstance(bit, int))
        self._unused = 1 + max(bits, default=1)
        self.added = 0

    def add(self, net: int | str, group: Iterable[Sink], *, ahead: float = 0.0) -> Sink:
        """Put a buffer between a net and some of its sinks; return the new sink."""
        for sink in group:
            sink.bits[sink.index] = self._unused
        connections: dict[str, list[int | str]] = {
            self._source.name: [net],
            self._target.name: [self._unused],
        }
        self._cells[f"fan_out_buffer_{self._unused}"] = {
            "hide_name": 0,
            "type": self._type,
            "parameters": {},
            "attributes": {},
            "port_directions": {self._source.name: "input", self._target.name: "output"},
            "connections": connections,
        }
        self._unused, self.added = self._unused + 1, self.added + 1
        return Sink(bits=connections[self._source.name], index=0, pins=1, ahead=ahead)


def buffer_modules(design: dict[str, Any], library: Library) -> int:
    """Give every net that drives more than `FAN_OUT` pins a tree of buffers; clocks are ideal.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design as Yosys writes it in JSON, with memories as modules of their own; changed
        in place.
    library : Library
        The cells. One without a buffer leaves the design as it is.

    Returns
    -------
    int
        Buffers added, each module counted once.
    """
    if not library.buffer:
        return 0
    modules: dict[str, Any] = design["modules"]
    loads: dict[str, Loads] = {}
    added = 0
    for name in innermost_first(modules):
        module = modules[name]
        sinks: Sinks = {}
        for cell in module["cells"].values():
            add_sinks(sinks, cell, library, loads)
        buffers = Buffers(module, library.buffer)
        for net, ends in sinks.items():
            while sum(sink.pins for sink in ends) > FAN_OUT and len(ends) > 1:
                ends[:] = [buffers.add(net, group) for group in _groups(ends)]
        added += buffers.added
        loads[name] = {
            port: [(sum(sink.pins for sink in sinks.get(bit, ())), 0.0) for bit in bits]
            for port, bits in input_ports(module)
        }
    return added


def innermost_first(modules: dict[str, Any]) -> list[str]:
    """Return the modules' names, each behind all that it contains."""
    below = {
        name: {cell["type"] for cell in module["cells"].values()} & modules.keys()
        for name, module in modules.items()
    }
    return list(TopologicalSorter(below).static_order())


def input_ports(module: dict[str, Any]) -> list[tuple[str, list[int | str]]]:
    """Return names and bits of a module's input ports."""
    ports = module["ports"].items()
    return [(name, port["bits"]) for name, port in ports if port["direction"] == "input"]


def add_sinks(
    sinks: Sinks,
    cell: dict[str, Any],
    library: Library,
    loads: dict[str, Loads],
    *,
    beyond: float = 0.0,
) -> None:
    """Add where nets end at a cell, a memory or a module; constants end nowhere.

    Parameters
    ----------
    sinks : Sinks
        What is added to.
    cell : dict[str, Any]
        The cell, as Yosys writes it.
    library : Library
        The cells that are known; clocks are ideal.
    loads : dict[str, Loads]
        What the modules' ports drive.
    beyond : float
        The delay through the cell and ahead of it, if it is one that ends no path.
    """
    connections, kind = cell["connections"], cell["type"]
    if kind in loads:
        pins = loads[kind]
    elif kind in library.cells:
        pins = {pin.name: [(1, beyond)] for pin in library.cells[kind].inputs if not pin.clock}
    else:
        pins = {
            port: [(1, 0.0)] * len(bits)
            for port, bits in connections.items()
            if cell["port_directions"][port] == "input" and not port.endswith("_CLK")
        }
    for port, bits in pins.items():
        for index, (number, ahead) in enumerate(bits):
            net = connections[port][index]
            if number and isinstance(net, int):
                sink = Sink(bits=connections[port], index=index, pins=number, ahead=ahead)
                sinks.setdefault(net, []).append(sink)


def _groups(sinks: list[Sink]) -> list[list[Sink]]:
    """Share sinks out in their order, so that no group has more than `FAN_OUT` pins if it can."""
    groups: list[list[Sink]] = [[]]
    pins = 0
    for sink in sinks:
        if groups[-1] and pins + sink.pins > FAN_OUT:
            groups.append([])
            pins = 0
        groups[-1].append(sink)
        pins += sink.pins
    return groups
