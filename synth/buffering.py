"""Buffer trees between modules: no net of a mapped design drives more than a few pins.

The mapper buffers what it sees, one module at a time, and takes a port for one load. What a
register or an input port of a module drives inside a hundred others is found here, from the
innermost modules outwards, and gets a tree of buffers in the module where it is spread.
"""

from dataclasses import dataclass
from typing import Any

from synth.liberty import Library

FAN_OUT = 16
"""Pins that a net drives at most, as in the mapper's own buffering."""


@dataclass(frozen=True, kw_only=True)
class _Sink:
    """Where a net ends: an entry of a cell's connection, and the pins that it drives there."""

    bits: list[int | str]
    index: int
    pins: int


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
    loads: dict[str, dict[str, list[int]]] = {}
    added = 0

    def visit(name: str) -> None:
        nonlocal added
        cells = modules[name]["cells"].values()
        for child in {cell["type"] for cell in cells} & modules.keys() - loads.keys():
            visit(child)
        sinks = _sinks(modules[name], library, loads)
        added += _insert(modules[name], library, sinks)
        loads[name] = {
            port: [sum(sink.pins for sink in sinks.get(bit, ())) for bit in value["bits"]]
            for port, value in modules[name]["ports"].items()
            if value["direction"] == "input"
        }

    for name in modules:
        if name not in loads:
            visit(name)
    return added


def _sinks(
    module: dict[str, Any], library: Library, loads: dict[str, dict[str, list[int]]]
) -> dict[int | str, list[_Sink]]:
    """Return where each net of a module ends; constants end nowhere."""
    sinks: dict[int | str, list[_Sink]] = {}

    def end(bits: list[int | str], index: int, pins: int) -> None:
        if pins and isinstance(bits[index], int):
            sinks.setdefault(bits[index], []).append(_Sink(bits=bits, index=index, pins=pins))

    for cell in module["cells"].values():
        connections = cell["connections"]
        if cell["type"] in library.cells:
            for pin in library.cells[cell["type"]].inputs:
                if not pin.clock:
                    end(connections[pin.name], 0, 1)
        elif cell["type"] in loads:
            for port, pins in loads[cell["type"]].items():
                for index, load in enumerate(pins):
                    end(connections[port], index, load)
        else:
            for port, bits in connections.items():
                if cell["port_directions"][port] == "input" and not port.endswith("_CLK"):
                    for index in range(len(bits)):
                        end(bits, index, 1)
    return sinks


def _insert(module: dict[str, Any], library: Library, sinks: dict[int | str, list[_Sink]]) -> int:
    """Put a tree of buffers into every net with too many pins, and leave its root in `sinks`."""
    buffer = library.buffer
    assert buffer is not None
    (source,), (target,) = buffer.inputs, buffer.outputs
    unused = 1 + max(
        (
            bit
            for place in (*module["ports"].values(), *module["netnames"].values())
            for bit in place["bits"]
            if isinstance(bit, int)
        ),
        default=1,
    )
    added = 0
    for net, ends in sinks.items():
        while sum(sink.pins for sink in ends) > FAN_OUT and len(ends) > 1:
            roots = []
            for group in _groups(ends):
                for sink in group:
                    sink.bits[sink.index] = unused
                connections = {source.name: [net], target.name: [unused]}
                module["cells"][f"fan_out_buffer_{unused}"] = {
                    "hide_name": 0,
                    "type": buffer.name,
                    "parameters": {},
                    "attributes": {},
                    "port_directions": {source.name: "input", target.name: "output"},
                    "connections": connections,
                }
                roots.append(_Sink(bits=connections[source.name], index=0, pins=1))
                unused, added = unused + 1, added + 1
            ends[:] = roots
    return added


def _groups(sinks: list[_Sink]) -> list[list[_Sink]]:
    """Share sinks out in their order, so that no group has more than `FAN_OUT` pins if it can."""
    groups: list[list[_Sink]] = [[]]
    pins = 0
    for sink in sinks:
        if groups[-1] and pins + sink.pins > FAN_OUT:
            groups.append([])
            pins = 0
        groups[-1].append(sink)
        pins += sink.pins
    return groups
