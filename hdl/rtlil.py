"""Reader, mutable representation and writer for the subset of RTLIL that Amaranth generates.

A text is a sequence of modules. Attributes precede the object that they describe. A signal is a
wire, a slice of a wire, a constant, or a flat concatenation of these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Self

_NAME = re.compile(r"(?<!\S)[\\$]\S+")
_SLICE = re.compile(r"(?P<name>[\\$]\S+)(?: \[(?P<high>\d+)(?::(?P<low>\d+))?\])?")
_CHUNK = re.compile(rf"(?P<width>\d+)'(?P<value>[01xz-]*)|{_SLICE.pattern}")
_SIGNAL = re.compile(r"\{.*?\}(?!\S)|\S+(?: \[[\d:]+\])?")


@dataclass
class Wire:
    """A wire: its width in bits, its direction and position if it is a port, its attributes."""

    width: int
    direction: str = ""
    position: int = 0
    attributes: list[str] = field(default_factory=list)


class Slice(NamedTuple):
    """Adjacent bits of a wire or of a constant.

    `source` is the wire's name, or the constant's bits, most significant bit first.
    """

    source: str
    low: int
    width: int

    @property
    def is_constant(self) -> bool:
        """Whether the source is a constant."""
        return not self.source.startswith(("\\", "$"))

    @property
    def _high(self) -> int:
        return self.low + self.width

    def __str__(self) -> str:
        """Return the bits in RTLIL's notation."""
        if self.is_constant:
            end = len(self.source)
            return f"{self.width}'{self.source[end - self._high : end - self.low]}"
        place = f"{self._high - 1}:{self.low}" if self.width > 1 else f"{self.low}"
        return f"{self.source} [{place}]"


@dataclass(frozen=True)
class Signal:
    """A concatenation of slices of wires and constants, least significant first."""

    slices: tuple[Slice, ...]

    @classmethod
    def of(cls, name: str, low: int, high: int) -> Self:
        """Return the bits of a wire from `low` (included) to `high` (excluded)."""
        return cls((Slice(name, low, high - low),))

    @classmethod
    def read(cls, text: str, wires: Mapping[str, "Wire"]) -> Self:
        """Parse a signal.

        Raises
        ------
        ValueError
            If a part of the text is neither a wire, a slice of one, nor a binary constant.
        """
        slices, position = list[Slice](), 0
        inner = text.removeprefix("{").removesuffix("}").strip() if text[:1] == "{" else text
        while position < len(inner):
            chunk = _CHUNK.match(inner, position)
            if chunk is None:
                raise ValueError(f"a signal must be wires, slices and binary constants, not {text}")
            if chunk["name"] is None:
                slices.append(Slice(chunk["value"], 0, int(chunk["width"])))
            elif chunk["high"] is None:
                slices.append(Slice(chunk["name"], 0, wires[chunk["name"]].width))
            else:
                low = int(chunk["low"] or chunk["high"])
                slices.append(Slice(chunk["name"], low, int(chunk["high"]) - low + 1))
            position = chunk.end() + 1
        return cls(tuple(one for one in slices[::-1] if one.width))

    def part(self, low: int, high: int) -> "Signal":
        """Return the bits from `low` (included) to `high` (excluded)."""
        parts, position = list[Slice](), 0
        for source, first, width in self.slices:
            start, stop = max(low, position), min(high, position + width)
            if start < stop:
                parts.append(Slice(source, first + start - position, stop - start))
            position += width
        return Signal(tuple(parts))

    def __str__(self) -> str:
        """Return the signal in RTLIL's notation."""
        words = [str(one) for one in self.slices[::-1]]
        return words[0] if len(words) == 1 else f"{{ {' '.join(words)} }}"


@dataclass
class Cell:
    """A cell: an operator, a flip-flop, a memory port, or an instance of a module."""

    kind: str
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    connections: dict[str, str] = field(default_factory=dict)
    attributes: list[str] = field(default_factory=list)

    @property
    def is_instance(self) -> bool:
        """Whether the cell is an instance of a module."""
        return self.kind.startswith("\\")


@dataclass
class Line:
    """One line of a process: an assignment, or the beginning or end of a switch or a case."""

    text: str
    attributes: list[str] = field(default_factory=list)

    @property
    def sides(self) -> tuple[str, str]:
        """The signal that the line drives and the one that it reads; an empty string for none."""
        word, _, tail = self.text.partition(" ")
        if word == "assign":
            return _two_signals(tail)
        return "", tail if word == "switch" else ""


@dataclass
class Process:
    """A process: a sequence of conditional assignments."""

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
        """Rename wires in all declarations and signals; wires that `names` omits keep theirs."""
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

    def fields(self) -> dict[str, dict[tuple[int, int], str]]:
        """Return the wires that read a field of a struct, by the struct's wire and the bits.

        The bits are a pair: the field's first bit, and the bit after its last.
        """
        fields: dict[str, dict[tuple[int, int], str]] = {}
        for left, right in self.connections:
            match = _SLICE.fullmatch(right)
            if (
                match
                and match["high"]
                and left.startswith((f"{match['name']}.", f"{match['name']}["))
            ):
                bits = int(match["low"] or match["high"]), int(match["high"]) + 1
                fields.setdefault(match["name"], {}).setdefault(bits, left)
        return fields

    def connect(self, left: Signal, right: Signal) -> None:
        """Add a connection in which `right` drives `left`."""
        self.connections.append((str(left), str(right)))

    def free_name(self, name: str) -> str:
        """Return the name, or the first free name with a number appended."""
        if name not in self.wires:
            return name
        return next(free for i in count(1) if (free := f"{name}${i}") not in self.wires)

    def __str__(self) -> str:
        """Return the module in RTLIL's notation."""
        return "\n".join(_write(self)) + "\n"


def names_in(signal: str) -> list[str]:
    """Return the names of the wires in a signal."""
    return _NAME.findall(signal)


def substituted(signal: str, names: Mapping[str, str]) -> str:
    """Return a signal with the wires in `names` renamed."""
    return _NAME.sub(lambda match: names.get(match[0], match[0]), signal)


def bits(name: str, width: int) -> str:
    """Return all bits of a wire in the notation that Amaranth uses for reads."""
    return f"{name} [{width - 1}:0]" if width > 1 else f"{name} [0]"


def read_modules(lines: Iterable[str]) -> list[Module]:
    """Read every module of a text, whose lines must have no indentation."""
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
    # Cells specify which operands are signed. A signed wire would repeat this, and would be wrong
    # if an operator reads the wire as unsigned.
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
    """Split the text of an assignment or a connection into its left and its right side."""
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
