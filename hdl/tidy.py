"""What readers of Verilog are spared: wires nobody reads, flip-flops in three pieces, odd names.

Nothing here changes what the hardware does: `hdl.digest` says the same before and after.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from hdl.rtlil import Cell, Module, Process, bits, names_in, substituted

_RESET = re.compile(
    r"switch (?P<when>\S+ \[\d+\])\ncase 1'1\nassign (?P<to>.*\]) (?P<value>\d+'[01]+)\nend\Z"
)
_ENABLE = re.compile(
    r"assign (?P<to>\S+ \[[\d:]+\]) (?P<old>.*)\nswitch (?P<when>\S+ \[\d+\])\ncase 1'1\n"
    r"assign (?P=to) (?P<new>.*)\nend\n?"
)
_PLAIN = re.compile(r"assign (?P<to>\S+ \[[\d:]+\]) (?P<new>.*)\n?")
_SLICE = re.compile(r"[\\$]\S+ \[[\d:]+\]")

Outputs = Mapping[str, Collection[str]]
"""The output ports of the modules that may be instantiated, by the module's name."""


def merge_equal(module: Module) -> None:
    """Form once what several readers have formed each for themselves."""
    merged = True
    while merged:
        formed: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for cell in module.cells:
            if cell.connections.keys() <= {"A", "B", "S", "Y"} and "Y" in cell.connections:
                *inputs, result = cell.connections.values()
                formed[cell.kind, *cell.parameters.values(), *inputs].append(result)
        merged = {}
        for results in formed.values():
            # Names of the source stay, all of them.
            results.sort(key=lambda name: name[0] == "$")
            private = [name for name in results[1:] if re.fullmatch(r"\$\d+", name)]
            merged |= dict.fromkeys(private, results[0])
        module.cells = [cell for cell in module.cells if cell.connections.get("Y") not in merged]
        _substitute(module, merged)


def _substitute(module: Module, names: Mapping[str, str]) -> None:
    """Read one wire where another was read."""
    if names:
        for cell in module.cells:
            for port, signal in cell.connections.items():
                cell.connections[port] = substituted(signal, names)
        for process in module.processes:
            for line in process.lines:
                line.text = substituted(line.text, names)
        module.connections = [(a, substituted(b, names)) for a, b in module.connections]


def form_flip_flops(module: Module) -> None:
    """Give flip-flops their reset and their enable, which Amaranth leaves in front of them."""
    reads = Counter(
        name for signal in _read_signals(module, {}) for name in names_in(signal)
    )  # Of instances the outputs count too, which forms fewer.
    feeding = {}
    for process in module.processes:
        driven = {name for line in process.lines for name in names_in(line.sides[0])}
        if len(driven) == 1:
            feeding[driven.pop()] = process
    for cell in module.cells:
        if cell.kind == "$dff":
            name, width = cell.connections["D"].partition(" ")[0], int(cell.parameters["WIDTH"])
            data = bits(name, width)
            if name[0] == "$" and reads[name] == 1 and cell.connections["D"] == data:
                if process := feeding.get(name):
                    _move_conditions(process, cell, data, bits(cell.connections["Q"], width))
    module.processes = [process for process in module.processes if process.lines]


def _move_conditions(process: Process, cell: Cell, data: str, held: str) -> None:
    """Move what a process ends with into the flip-flop that it feeds."""
    text = "\n".join(line.text for line in process.lines)
    reset = _RESET.search(text)
    if reset and reset["to"] == data:
        text = text[: reset.start()]
        del process.lines[text.count("\n") :]
        cell.connections["SRST"] = reset["when"]
        cell.parameters |= {"SRST_POLARITY": "1", "SRST_VALUE": reset["value"]}
    enable, plain = _ENABLE.fullmatch(text), _PLAIN.fullmatch(text)
    if enable and enable["to"] == data and enable["old"] == held:
        cell.connections |= {"D": enable["new"], "EN": enable["when"]}
        cell.parameters["EN_POLARITY"] = "1"
        process.lines.clear()
    elif plain and plain["to"] == data:
        cell.connections["D"] = plain["new"]
        process.lines.clear()
    conditions = "SRST" in cell.connections, "EN" in cell.connections
    cell.kind = f"${'s' * conditions[0]}dff{'e' * conditions[1]}"


def forget_contents(module: Module) -> None:
    """Let what a memory holds be unknown until it is written, as in an SRAM macro."""
    module.cells = [
        cell
        for cell in module.cells
        if cell.kind != "$meminit_v2" or "1" in cell.connections["DATA"].partition("'")[2]
    ]


def name_fields(module: Module, outputs: Outputs) -> None:
    """Read a struct's field by the field's name instead of by its bits."""
    fields = {}
    for left, right in module.connections:
        base = right.partition(" ")[0]
        if left.startswith((f"{base}.", f"{base}[")) and _SLICE.fullmatch(right):
            fields.setdefault(right, bits(left, module.wires[left].width))

    def by_name(signal: str) -> str:
        return _SLICE.sub(lambda match: fields.get(match[0], match[0]), signal)

    for cell in module.cells:
        driven = _driven_ports(cell, outputs)
        for port, signal in cell.connections.items():
            if port not in driven:
                cell.connections[port] = by_name(signal)
    for process in module.processes:
        for line in process.lines:
            left, right = line.sides
            line.text = line.text.removesuffix(right) + by_name(right)


def drop_unread(module: Module, outputs: Outputs) -> None:
    """Drop what neither an output, an instance nor a memory depends on."""
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
    """Keep what drives the wires that are read, and all memories and instances."""

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


def _read_signals(module: Module, outputs: Outputs) -> Iterable[str]:
    for driver in (*module.cells, *module.processes, *module.connections):
        yield from _inputs(driver, outputs)
