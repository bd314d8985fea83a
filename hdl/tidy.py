"""Simplifications that make Verilog readable: no copies, no unread wires, no bits with a name.

The function of the hardware does not change: `hdl.digest` is equal before and after.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from hdl.rtlil import Cell, Module, Process, Signal, bits, names_in, substituted

_SLICE = re.compile(r"[\\$]\S+ \[[\d:]+\]")

Outputs = Mapping[str, Collection[str]]
"""The output ports of the modules that may be instantiated, by the module's name."""


def share_operators(module: Module) -> None:
    """Merge copies of an operator: Amaranth writes one copy for each reader of an expression."""
    operators = {
        cell.connections["Y"]: cell
        for cell in module.cells
        if not cell.is_instance and {"A", "Y"} <= cell.connections.keys()
        if cell.connections["Y"] in module.wires
    }
    # Merging operands can make further operators equal: iterate until nothing changes.
    first: dict[str, str] = {}
    before = None
    while first != before:
        before, known = first, dict[tuple[str, ...], str]()
        first = {
            output: known.setdefault(_function(cell, before), output)
            for output, cell in operators.items()
        }
    # Readers of an unnamed copy read a copy that the source names, if one exists.
    named: dict[str, str] = {}
    for output, copied in first.items():
        if output.startswith("\\"):
            named.setdefault(copied, output)
    copies = {
        output: one
        for output, copied in first.items()
        if output != (one := named.get(copied, copied))
    }
    dropped = {operators[output].name for output in copies}
    module.cells = [cell for cell in module.cells if cell.name not in dropped]
    module.connections += [
        (output, bits(one, module.wires[one].width))
        for output, one in copies.items()
        if output.startswith("\\")
    ]
    unnamed = {output: one for output, one in copies.items() if output.startswith("$")}
    module.wires = {name: wire for name, wire in module.wires.items() if name not in unnamed}
    module.rename(unnamed)


def _function(cell: Cell, copied: Mapping[str, str]) -> tuple[str, ...]:
    """Return an operator's kind, parameters and operands, with copies of a signal merged."""
    operands = (
        f"{port} {substituted(signal, copied)}"
        for port, signal in cell.connections.items()
        if port != "Y"
    )
    return cell.kind, *(f"{key} {value}" for key, value in cell.parameters.items()), *operands


def name_fields(module: Module, outputs: Outputs) -> None:
    """Replace reads of a struct's bits by reads of the named field."""
    fields = {
        str(Signal.of(name, *place)): bits(field, module.wires[field].width)
        for name, places in module.fields().items()
        for place, field in places.items()
    }

    def by_name(signal: str) -> str:
        return _SLICE.sub(lambda match: fields.get(match[0], match[0]), signal)

    for cell in module.cells:
        driven = _driven_ports(cell, outputs)
        for port, signal in cell.connections.items():
            if port not in driven:
                cell.connections[port] = by_name(signal)
    for process in module.processes:
        for line in process.lines:
            _left, right = line.sides
            line.text = line.text.removesuffix(right) + by_name(right)


def drop_unread(module: Module, outputs: Outputs) -> None:
    """Remove logic that no output, instance or memory depends on."""
    drivers = defaultdict[str, list[Cell | Process | tuple[str, str]]](list)
    live = [name for name, wire in module.wires.items() if wire.direction]
    for cell in module.cells:
        driven = _driven_ports(cell, outputs)
        for port in driven:
            for name in names_in(cell.connections[port]):
                drivers[name].append(cell)
        if cell.is_instance or cell.kind.startswith("$mem"):
            live += _inputs(cell, outputs)
    for process in module.processes:
        for name in {name for line in process.lines for name in names_in(line.sides[0])}:
            drivers[name].append(process)
    for connection in module.connections:
        for name in names_in(connection[0]):
            drivers[name].append(connection)
    read: set[str] = set()
    while live:
        name = live.pop()
        if name in read:
            continue
        read.add(name)
        for driver in drivers[name]:
            live += _inputs(driver, outputs)
    _keep(module, read, outputs)


def _keep(module: Module, read: set[str], outputs: Outputs) -> None:
    """Keep the drivers of wires that are read, and all memories and instances."""

    def reaches(signal: str) -> bool:
        return not read.isdisjoint(names_in(signal))

    module.cells = [
        cell
        for cell in module.cells
        if cell.is_instance
        or cell.kind.startswith("$mem")
        or any(reaches(cell.connections[port]) for port in _driven_ports(cell, outputs))
    ]
    module.processes = [
        process
        for process in module.processes
        if any(reaches(line.sides[0]) for line in process.lines)
    ]
    module.connections = [pair for pair in module.connections if reaches(pair[0])]
    signals = [pair[0] for pair in module.connections]
    signals += [signal for cell in module.cells for signal in cell.connections.values()]
    signals += [line.sides[0] for process in module.processes for line in process.lines]
    read |= {name for signal in signals for name in names_in(signal)}
    module.wires = {name: wire for name, wire in module.wires.items() if name in read}


def _driven_ports(cell: Cell, outputs: Outputs) -> set[str]:
    """Return the ports that a cell drives."""
    if cell.is_instance:
        driven = set(outputs.get(cell.kind, ()))
    else:
        driven = {"DATA"} if cell.kind == "$memrd_v2" else {"Y", "Q"}
    return driven & cell.connections.keys()


def _inputs(driver: Cell | Process | tuple[str, str], outputs: Outputs) -> list[str]:
    """Return the names that a driver reads."""
    if isinstance(driver, Cell):
        driven = _driven_ports(driver, outputs)
        signals = [signal for port, signal in driver.connections.items() if port not in driven]
    elif isinstance(driver, Process):
        signals = [line.sides[1] for line in driver.lines]
    else:
        signals = [driver[1]]
    return [name for signal in signals for name in names_in(signal)]
