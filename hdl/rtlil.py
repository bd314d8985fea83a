"""RTLIL as Amaranth writes it: read into parts that can be changed, and written again.

The subset is Amaranth's: one module after another, attributes before what they describe, signals
that are a wire, a slice of one, a constant, or a flat concatenation of these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"(?<!\S)[\\$]\S+")
_SIGNAL = re.compile(r"\{.*?\}(?!\S)|\S+(?: \[[\d:]+\])?")


@dataclass
class Wire:
    """A wire: its width, its place among the ports if it is one, its attributes."""

    width: int
    direction: str = ""
    position: int = 0
    attributes: list[str] = field(default_factory=list)


@dataclass
class Cell:
    """A cell: an operator, a flip-flop, a port of a memory, or an instance of a module."""

    kind: str
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    connections: dict[str, str] = field(default_factory=dict)
    attributes: list[str] = field(default_factory=list)

    @property
    def is_instance(self) -> bool:
        """Whether the cell is another module."""
        return self.kind.startswith("\\")


@dataclass
class Line:
    """One line of a process: an assignment, or where a switch or a case begins or ends."""

    text: str
    attributes: list[str] = field(default_factory=list)

    @property
    def sides(self) -> tuple[str, str]:
        """What the line drives and what it reads; the empty text for nothing."""
        word, _, tail = self.text.partition(" ")
        if word == "assign":
            return _two_signals(tail)
        return "", tail if word == "switch" else ""


@dataclass
class Process:
    """Assignments under conditions."""

    name: str
    lines: list[Line] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)


@dataclass
class Module:
    """One RTLIL module."""

    name: str
    wires: dict[str, Wire] = field(default_factory=dict)
    memories: dict[str, str] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    connections: list[tuple[str, str]] = field(default_factory=list)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give wires other names, wherever they are spelled; those without one keep theirs."""
        self.wires = {names.get(name, name): wire for name, wire in self.wires.items()}
        for cell in self.cells:
            for port, signal in cell.connections.items():
                cell.connections[port] = substituted(signal, names)
        for process in self.processes:
            for line in process.lines:
                if line.text.startswith(("assign ", "switch ")):
                    line.text = substituted(line.text, names)
        self.connections = [
            (substituted(left, names), substituted(right, names))
            for left, right in self.connections
        ]

    def __str__(self) -> str:
        """Write the module."""
        return "\n".join(_write(self)) + "\n"


def names_in(signal: str) -> list[str]:
    """Return the names of the wires in a signal."""
    return _NAME.findall(signal)


def substituted(signal: str, names: Mapping[str, str]) -> str:
    """Return a signal with wires under their other names, where they have one."""
    return _NAME.sub(lambda match: names.get(match[0], match[0]), signal)


def bits(name: str, width: int) -> str:
    """Spell all bits of a wire as Amaranth does where it reads one."""
    return f"{name} [{width - 1}:0]" if width > 1 else f"{name} [0]"


def read_modules(lines: Iterable[str]) -> list[Module]:
    """Read every module of a text, whose lines come without what indents them."""
    rest = (line for line in lines if line)
    return [_read_module(line[7:], rest) for line in rest if line.startswith("module ")]


def _read_module(name: str, lines: Iterator[str]) -> Module:
    module, attributes = Module(name), []
    for line in lines:
        word, _, tail = line.partition(" ")
        match word:
            case "attribute":
                attributes.append(tail)
                continue
            case "end":
                break
            case "wire":
                _read_wire(module, tail, attributes)
            case "memory":
                options, _, memory = tail.rpartition(" ")
                module.memories[memory] = options
            case "cell":
                module.cells.append(_read_cell(tail, lines, attributes))
            case "process":
                module.processes.append(_read_process(tail, lines, attributes))
            case "connect":
                module.connections.append(_two_signals(tail))
        attributes = []
    return module


def _read_wire(module: Module, tail: str, attributes: list[str]) -> None:
    # Cells say themselves which operands are signed; a signed wire would say it again, and wrongly
    # where an operator reads it as unsigned.
    words = [word for word in tail.split() if word != "signed"]
    wire = Wire(int(words[words.index("width") + 1]), attributes=attributes)
    for direction in ("input", "output"):
        if direction in words[:-1]:
            wire.direction = direction
            wire.position = int(words[words.index(direction) + 1])
    module.wires[words[-1]] = wire


def _read_cell(tail: str, lines: Iterator[str], attributes: list[str]) -> Cell:
    kind, name = tail.split(" ")
    cell = Cell(kind, name, attributes=attributes)
    for line in lines:
        word, _, tail = line.partition(" ")
        if word == "end":
            break
        key, _, value = tail.partition(" ")
        target = cell.connections if word == "connect" else cell.parameters
        target[key.removeprefix("\\")] = value
    return cell


def _read_process(name: str, lines: Iterator[str], attributes: list[str]) -> Process:
    process, depth, own = Process(name, attributes=attributes), 0, []
    for line in lines:
        if line.startswith("attribute "):
            own.append(line.removeprefix("attribute "))
            continue
        depth += line.startswith("switch ")
        if line == "end":
            if not depth:
                break
            depth -= 1
        process.lines.append(Line(line, own))
        own = []
    return process


def _two_signals(text: str) -> tuple[str, str]:
    """Split what an assignment or a connection says into its left and its right side."""
    left = _SIGNAL.match(text)
    assert left is not None
    return left[0], text[left.end() + 1 :]


def _write(module: Module) -> Iterable[str]:
    yield f"module {module.name}"
    for name, options in module.memories.items():
        yield f"  memory {options} {name}"
    for name, wire in module.wires.items():
        yield from _write_attributes(wire.attributes)
        port = f"{wire.direction} {wire.position} " if wire.direction else ""
        yield f"  wire width {wire.width} {port}{name}"
    for cell in module.cells:
        yield from _write_attributes(cell.attributes)
        yield f"  cell {cell.kind} {cell.name}"
        yield from (f"    parameter \\{key} {value}" for key, value in cell.parameters.items())
        yield from (f"    connect \\{key} {value}" for key, value in cell.connections.items())
        yield "  end"
    for process in module.processes:
        yield from _write_attributes(process.attributes)
        yield f"  process {process.name}"
        for line in process.lines:
            yield from _write_attributes(line.attributes)
            yield f"    {line.text}"
        yield "  end"
    yield from (f"  connect {left} {right}" for left, right in module.connections)
    yield "end"


def _write_attributes(attributes: list[str]) -> Iterable[str]:
    return (f"  attribute {attribute}" for attribute in attributes)
