"""Buffer trees between modules, which bound the number of pins per net of a mapped design.

The mapper buffers one module at a time and counts a port as one load. This module determines the
loads across module boundaries, from the innermost modules outwards, and inserts a buffer tree into
the module in which a net branches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from synth.liberty import Cell, Library

FAN_OUT = 16
"""Maximum number of pins per net, as in the mapper's own buffering."""


Loads = dict[str, list[tuple[int, float]]]
"""By input port and bit of a module: the pins that it drives inside, and the delay from there."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A sink of a net: an entry of a cell's connection, and the pins that it drives there.

    `ahead` is the delay downstream of the sink, if it is needed.
    """

    bits: list[int | str]
    index: int
    pins: int
    ahead: float = 0.0


Sinks = dict[int | str, list[Sink]]
"""The sinks of each net, in the order of the cells."""


class Buffers:
    """Adds buffers to a module; `added` counts them."""

    def __init__(self, module: dict[str, Any], buffer: Cell) -> None:
        self._cells, self._type = module["cells"], buffer.name
        (self._source,), (self._target,) = buffer.inputs, buffer.outputs
        self._unused = unused_net(module)
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


def unused_net(module: dict[str, Any]) -> int:
    """Return the first number of a module that no net has, nor any after it."""
    nets = [net["bits"] for net in (*module["ports"].values(), *module["netnames"].values())]
    nets += [bits for cell in module["cells"].values() for bits in cell["connections"].values()]
    return 1 + max((bit for bits in nets for bit in bits if isinstance(bit, int)), default=1)


def buffer_modules(design: dict[str, Any], library: Library) -> int:
    """Insert a buffer tree into every net that drives more than `FAN_OUT` pins; clocks are ideal.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design in Yosys's JSON format, with each memory as a separate module; changed in
        place.
    library : Library
        The cells. Without a buffer cell, the design is not changed.

    Returns
    -------
    int
        Buffers added, each module counted once.
    """
    if not library.buffer:
        return 0
    added = 0
    for module, sinks in modules_with_sinks(design, library):
        buffers = Buffers(module, library.buffer)
        for net, ends in sinks.items():
            while sum(sink.pins for sink in ends) > FAN_OUT and len(ends) > 1:
                ends[:] = [buffers.add(net, group) for group in _groups(ends)]
        added += buffers.added
    return added


def modules_with_sinks(
    design: dict[str, Any], library: Library
) -> Iterator[tuple[dict[str, Any], Sinks]]:
    """Yield each module, after all modules that it contains, with the pins that its nets drive.

    An input port of a module counts as the pins in it, after the changes that the caller makes to
    the module's sinks.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design in Yosys's JSON format, with each memory as a separate module.
    library : Library
        The cells; clocks are ideal.
    """
    modules: dict[str, Any] = design["modules"]
    loads: dict[str, Loads] = {}
    for name in innermost_first(modules):
        module = modules[name]
        sinks: Sinks = {}
        for cell in module["cells"].values():
            add_sinks(sinks, cell, library, loads)
        yield module, sinks
        loads[name] = {
            port: [(sum(sink.pins for sink in sinks.get(bit, ())), 0.0) for bit in bits]
            for port, bits in input_ports(module)
        }


def innermost_first(modules: dict[str, Any]) -> list[str]:
    """Return the modules' names, each after all modules that it contains."""
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
    """Add the sinks at the inputs of a cell, a memory or a module, except for constant inputs.

    Parameters
    ----------
    sinks : Sinks
        The sinks, extended in place.
    cell : dict[str, Any]
        The cell in Yosys's JSON format.
    library : Library
        The cell library; clocks are ideal.
    loads : dict[str, Loads]
        Loads of the modules' input ports.
    beyond : float
        The delay through the cell and downstream of it, if the cell ends no path.
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
    """Group sinks in order, with at most `FAN_OUT` pins per group unless one sink exceeds it."""
    groups: list[list[Sink]] = [[]]
    pins = 0
    for sink in sinks:
        if groups[-1] and pins + sink.pins > FAN_OUT:
            groups.append([])
            pins = 0
        groups[-1].append(sink)
        pins += sink.pins
    return groups
