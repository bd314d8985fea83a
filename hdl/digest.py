"""What a design is apart from its names: a digest of its structure.

Names of modules, files, ports, wires and cells do not count, nor the order in which anything is
declared, comments, attributes, what nothing reads, or whether two readers share an operator. What
counts is what every output is a function of: operators with their widths, registers, memories,
submodules, and between which bits they lie.

A cell's label is a hash of its kind and of the labels of what it reads, so a register's label
depends on itself; labels are refined from what all registers have in common until no two that are
still alike become different. Cells that share a label hold the same values from reset on.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from hdl.yosys import run_yosys

_SIZED = {f"${name}" for name in "add sub mul and or xor xnor not neg".split()}
"""Operators whose operands count only as far as the result is wide."""

_ALIKE = {"$reduce_bool": "$reduce_or"}
_ALIKE_ON_BITS = {"$logic_not": "$not", "$logic_and": "$and", "$logic_or": "$or"}
"""Operators of two names: in any case, and where every operand is a bit."""

_COMPARING = {f"${name}" for name in "eq ne lt le gt ge".split()}
"""Operators whose operands count as far as the wider one goes."""


class _Segment(NamedTuple):
    """Neighbouring bits of one driver: of a cell's output, an input port, or a constant."""

    driver: int | None
    what: str
    first: int
    length: int


class _Cell(NamedTuple):
    """A cell: what it is, and what it reads, port by port."""

    kind: str
    state: bool
    inputs: tuple[tuple[_Segment, ...], ...]


def verilog_digest(files: Iterable[Path]) -> str:
    """Return twelve hexadecimal digits that stand for the structure that Verilog files describe.

    Raises
    ------
    hdl.yosys.YosysError
        If Yosys cannot read the files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        passes = [f"read_verilog {file.resolve()}" for file in files]
        # Simplified on reading, one operator read twice would differ from two that are alike.
        passes += ["proc -noopt", "memory_collect", "write_json design.json"]
        run_yosys(passes, directory=Path(scratch))
        modules = json.loads(Path(scratch, "design.json").read_text())["modules"]
    labels: dict[str, str] = {}
    used: set[str] = set()

    def visit(name: str) -> None:
        for cell in modules[name]["cells"].values():
            if cell["type"] in modules:
                used.add(cell["type"])
                if cell["type"] not in labels:
                    visit(cell["type"])
        if name not in labels:
            labels[name] = _module_digest(modules, name, labels)

    for name in modules:
        visit(name)
    return _hash(sorted(labels[name] for name in modules.keys() - used))[:12]


def _module_digest(modules: dict[str, Any], name: str, known: dict[str, str]) -> str:
    """Return the digest of a module, given those of the modules that it instantiates."""
    module = modules[name]
    outputs, cells = _read_netlist(module, modules, known)
    live = _live(outputs, cells)
    order = _order(cells, live)
    states = [index for index in live if cells[index].state]
    labels = {index: cells[index].kind for index in states}
    classes = 0
    while classes < len(set(labels.values())):
        classes = len(set(labels.values()))
        for index in order:
            labels[index] = _label(cells[index], labels)
        labels |= {index: _label(cells[index], labels) for index in states}
    for index in order:
        labels[index] = _label(cells[index], labels)
    directions = [f"{port['direction']} {len(port['bits'])}" for port in module["ports"].values()]
    ports = [_spelled(segments, labels) for segments in outputs]
    return _hash(
        [
            *directions,
            *ports,
            *sorted(labels[index] for index in states),
            *sorted({labels[index] for index in order}),
        ]
    )


def _read_netlist(
    module: dict[str, Any], modules: dict[str, Any], known: dict[str, str]
) -> tuple[list[tuple[_Segment, ...]], list[_Cell]]:
    """Return what the output ports read, and the cells."""
    driven: dict[Any, tuple[int | None, str, int]] = {}
    for position, port in enumerate(module["ports"].values()):
        if port["direction"] == "input":
            driven |= {bit: (None, f"in {position}", i) for i, bit in enumerate(port["bits"])}
    for index, cell in enumerate(module["cells"].values()):
        for place, port in _ports(cell, modules, "output"):
            bits = cell["connections"][port]
            driven |= {bit: (index, place, i) for i, bit in enumerate(bits)}
    outputs = [
        _segments(port["bits"], driven)
        for port in module["ports"].values()
        if port["direction"] == "output"
    ]
    cells = []
    for cell in map(_normal, module["cells"].values()):
        operands = _operands(cell)
        inputs = tuple(
            (_Segment(None, f"to {place}", 0, 0), *_segments(operands[port], driven))
            for place, port in _ports(cell, modules, "input")
        )
        kind = f"{known.get(cell['type'], cell['type'])} {_parameters(cell)}"
        state = not cell["type"].startswith("$") or "ff" in cell["type"] or "mem" in cell["type"]
        cells.append(_Cell(kind, state, inputs))
    return outputs, cells


def _ports(
    cell: dict[str, Any], modules: dict[str, Any], direction: str
) -> Iterable[tuple[str, str]]:
    """Yield a cell's connected ports of one direction, each after what stands for its name."""
    directions = cell.get("port_directions", {})
    names = list(modules[cell["type"]]["ports"]) if cell["type"] in modules else None
    for port in names or sorted(cell["connections"]):
        if port in cell["connections"] and directions.get(port, "input") == direction:
            yield (str(names.index(port)) if names else port), port


def _normal(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell by the one name of its operator."""
    bits = all(len(signal) == 1 for signal in cell["connections"].values())
    known = _ALIKE | _ALIKE_ON_BITS if bits else _ALIKE
    return cell | {"type": known.get(cell["type"], cell["type"])}


def _operands(cell: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what is connected, operands extended by zeros or signs to the width that counts.

    Whether an operand is written as signed, or with zeros in front, is then all the same.
    """
    connections = dict(cell["connections"])
    if cell["type"] in _SIZED | _COMPARING:
        operands = {port: bits for port in "AB" if (bits := connections.get(port))}
        signs = {
            port: bits[-1] if int(cell["parameters"][f"{port}_SIGNED"], 2) else "0"
            for port, bits in operands.items()
        }
        for port, bits in operands.items():
            while len(bits) > 1 and bits[-1] == (signs[port] if signs[port] == "0" else bits[-2]):
                bits = operands[port] = bits[:-1]
        width = max(map(len, operands.values()))
        if cell["type"] in _SIZED:
            width = len(connections["Y"])
        for port, bits in operands.items():
            connections[port] = (bits + [signs[port]] * width)[:width]
    return connections


def _parameters(cell: dict[str, Any]) -> str:
    """Spell what counts of a cell's parameters."""
    parameters = cell["parameters"]
    if cell["type"] in _SIZED:
        return ""
    if cell["type"] in _COMPARING:
        return "" if cell["type"] in ("$eq", "$ne") else f"signed={parameters['A_SIGNED']}"
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(parameters.items())
        # A memory's name says nothing; contents that are zero or unknown are none.
        if name != "MEMID" and not (name == "INIT" and "1" not in value)
    )


def _segments(bits: Sequence[Any], driven: dict[Any, Any]) -> tuple[_Segment, ...]:
    """Join neighbouring bits of one driver."""
    segments: list[_Segment] = []
    for bit in bits:
        driver, what, offset = (None, bit, 0) if isinstance(bit, str) else driven[bit]
        last = segments[-1] if segments else None
        if last and last[:2] == (driver, what) and offset in (0, last.first + last.length):
            if offset or isinstance(bit, str):
                segments[-1] = last._replace(length=last.length + 1)
                continue
        segments.append(_Segment(driver, what, offset, 1))
    return tuple(segments)


def _live(outputs: list[tuple[_Segment, ...]], cells: list[_Cell]) -> list[int]:
    """Return the cells that an output or a submodule depends on."""
    instances = [index for index, cell in enumerate(cells) if not cell.kind.startswith("$")]
    waiting = [segment.driver for segments in outputs for segment in segments] + instances
    live: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index is not None and index not in live:
            live.add(index)
            waiting += [segment.driver for segment in chain(*cells[index].inputs)]
    return sorted(live)


def _order(cells: list[_Cell], live: list[int]) -> list[int]:
    """Return the operators among the live cells, each behind those that it reads."""
    order: list[int] = []
    done = {index for index in live if cells[index].state}
    for start in live:
        waiting = [start]
        while waiting:
            index = waiting[-1]
            missing = {
                segment.driver
                for segment in chain(*cells[index].inputs)
                if segment.driver is not None and segment.driver not in done
            }
            if index in done or not missing:
                waiting.pop()
                if index not in done:
                    done.add(index)
                    order.append(index)
            else:
                waiting += missing
    return order


def _label(cell: _Cell, labels: dict[int, str]) -> str:
    return _hash([cell.kind, *(_spelled(segments, labels) for segments in cell.inputs)])


def _spelled(segments: tuple[_Segment, ...], labels: dict[int, str]) -> str:
    """Spell what is read, neighbouring bits of cells with one label as if of one cell."""
    words: list[str] = []
    begun, end = ("", 0, 0), 0
    for driver, what, first, length in segments:
        source = f"{'' if driver is None else labels[driver]}:{what}"
        if words and begun[0] == source and end == first:
            words.pop()
            length += begun[2]
            first = begun[1]
        words.append(f"{source}:{first}:{length}")
        begun, end = (source, first, length), first + length
    return " ".join(words)


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
