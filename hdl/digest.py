"""A digest of a design's structure, which is independent of the design's names.

The digest covers the function of each output: operators with their widths, registers, memories,
submodules, and the bits that connect them. It ignores the names of modules, files, ports, wires
and cells, the order of declarations, comments, attributes and unread logic. It also ignores
whether two readers share an operator.

A cell's label is a hash of its kind and of the labels of its inputs, so a register's label depends
on itself. Registers start with one label per kind, and each iteration splits labels further. The
refinement ends when an iteration splits none. Cells with equal labels hold equal values from reset
on.
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
"""Operators that use no more bits of an operand than the result has."""

_ALIKE = {"$reduce_bool": "$reduce_or"}
_ALIKE_ON_BITS = {"$logic_not": "$not", "$logic_and": "$and", "$logic_or": "$or"}
"""Operators with two names: for all widths, and for operands of one bit each."""

_COMPARING = {f"${name}" for name in "eq ne lt le gt ge".split()}
"""Operators whose operands are extended to the width of the wider one."""


class _Segment(NamedTuple):
    """Adjacent bits of one driver: a cell's output, an input port, or a constant."""

    driver: int | None
    what: str
    first: int
    length: int


class _Cell(NamedTuple):
    """A cell: its kind, whether it holds state, and the segments that each input port reads."""

    kind: str
    state: bool
    inputs: tuple[tuple[_Segment, ...], ...]


def verilog_digest(files: Iterable[Path]) -> str:
    """Return a digest of the structure that Verilog files describe: twelve hexadecimal digits.

    Raises
    ------
    hdl.yosys.YosysError
        If Yosys cannot read the files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        passes = [f"read_verilog {file.resolve()}" for file in files]
        # Without `-noopt`, Yosys would simplify a shared operator and two equal copies differently.
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
    """Return the digest of a module from the digests of the modules that it instantiates."""
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
    ports = [_segments_text(segments, labels) for segments in outputs]
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
    """Return the segments that each output port reads, and the cells."""
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
    """Yield the label and the name of each connected port of one direction.

    The label of an instance's port is its position, because the port's name must not count.
    """
    directions = cell.get("port_directions", {})
    names = list(modules[cell["type"]]["ports"]) if cell["type"] in modules else None
    for port in names or sorted(cell["connections"]):
        if port in cell["connections"] and directions.get(port, "input") == direction:
            yield (str(names.index(port)) if names else port), port


def _normal(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell whose operator has its canonical name."""
    bits = all(len(signal) == 1 for signal in cell["connections"].values())
    known = _ALIKE | _ALIKE_ON_BITS if bits else _ALIKE
    return cell | {"type": known.get(cell["type"], cell["type"])}


def _operands(cell: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the connections, with operands extended by zeros or signs to the width that counts.

    An operand then has one form, whether it is declared as signed or written with leading zeros.
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
    """Return the text of the parameters that determine a cell's function."""
    parameters = cell["parameters"]
    if cell["type"] in _SIZED:
        return ""
    if cell["type"] in _COMPARING:
        return "" if cell["type"] in ("$eq", "$ne") else f"signed={parameters['A_SIGNED']}"
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(parameters.items())
        # The name of a memory does not count; zero or unknown contents equal no contents.
        if name != "MEMID" and not (name == "INIT" and "1" not in value)
    )


def _segments(bits: Sequence[Any], driven: dict[Any, Any]) -> tuple[_Segment, ...]:
    """Join adjacent bits of one driver."""
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
    """Return the operators among the live cells, each after those that it reads."""
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
    return _hash([cell.kind, *(_segments_text(segments, labels) for segments in cell.inputs)])


def _segments_text(segments: tuple[_Segment, ...], labels: dict[int, str]) -> str:
    """Return the text of segments, with adjacent bits of cells with equal labels joined."""
    texts: list[str] = []
    previous, end = ("", 0, 0), 0
    for driver, what, first, length in segments:
        source = f"{'' if driver is None else labels[driver]}:{what}"
        if texts and previous[0] == source and end == first:
            texts.pop()
            length += previous[2]
            first = previous[1]
        texts.append(f"{source}:{first}:{length}")
        previous, end = (source, first, length), first + length
    return " ".join(texts)


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
