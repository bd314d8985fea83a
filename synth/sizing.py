"""Sizing of a mapped design's cells by ABC, after all buffers are inserted."""

import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from hdl.yosys import YosysError, run_abc
from synth.buffering import innermost_first
from synth.liberty import Cell, Library

Net = int | str
"""A net of the flattened design: a number, or a constant."""


def size_cells(
    design: dict[str, Any], library: Library, directory: Path, commands: Sequence[str]
) -> float:
    """Set a design's gates to the sizes that ABC's commands select.

    ABC processes the flattened design with all instances, so it includes the logic upstream and
    downstream of a module's ports. A gate with several instances gets the maximum of their sizes.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design in Yosys's JSON format; types of cells are changed in place.
    library : Library
        The cells.
    directory : Path
        Folder of ``abc.constr`` and of ABC's files.
    commands : Sequence[str]
        ABC commands, which must not add or remove gates; the last is ``stime``.

    Returns
    -------
    float
        The longest path in picoseconds.

    Raises
    ------
    YosysError
        If ABC stops or changes the gates' functions.
    """
    network = Network(design["modules"], library)
    if not network.drivers:
        return 0.0
    unused = " ".join(f"-X {cell}" for cell in library.dont_use)
    (directory / "unsized.blif").write_text(network.blif())
    output = run_abc(
        [
            f'read_lib -w {unused} "{library.path}"',
            "read_constr abc.constr",
            "read_blif unsized.blif",
            "topo",
            *commands,
            "write_blif sized.blif",
        ],
        directory=directory,
        log=directory / "sizing.log",
    )
    network.take_sizes((directory / "sized.blif").read_text())
    return float(re.findall(r"Delay = +([\d.]+) ps", output)[-1])


class Network:
    """The network of gates between registers, memories and ports, for ABC.

    Nets are numbered over all modules. `drivers` contains the gates by their outputs: a cell, which
    may have several instances, and its inputs.
    """

    def __init__(self, modules: dict[str, Any], library: Library) -> None:
        self._library, self._modules = library, modules
        self._numbers = count(2)
        self._same: dict[int, Net] = {}
        self.drivers: dict[Net, tuple[dict[str, Any], list[Net]]] = {}
        self._ends: list[Net] = []
        top = innermost_first(modules)[-1]
        nets: dict[int, Net] = {}
        self._place(modules[top], nets)
        ports = modules[top]["ports"].values()
        self._ends += [self._net(bit, nets) for port in ports for bit in port["bits"]]
        # Nets that a port connects are one net from here on.
        self.drivers = {
            self._root(net): (cell, [self._root(source) for source in sources])
            for net, (cell, sources) in self.drivers.items()
        }
        ends = dict.fromkeys(self._root(net) for net in self._ends)
        self._ends = [net for net in ends if net in self.drivers]

    def _net(self, bit: Net, nets: dict[int, Net]) -> Net:
        """Return the net of a module's bit in one instance."""
        if isinstance(bit, str):
            return bit
        if bit not in nets:
            nets[bit] = next(self._numbers)
        return nets[bit]

    def _root(self, net: Net) -> Net:
        """Return the representative of all nets that are joined with a net."""
        while isinstance(net, int) and net in self._same:
            net = self._same[net]
        return net

    def _join(self, one: Net, other: Net) -> None:
        """Merge two nets; a constant becomes the representative."""
        one, other = sorted((self._root(one), self._root(other)), key=lambda n: isinstance(n, str))
        if one != other and isinstance(one, int):
            self._same[one] = other

    def _place(self, module: dict[str, Any], nets: dict[int, Net]) -> None:
        """Add an instance of a module, whose ports have `nets`, and its submodules."""
        for cell in module["cells"].values():
            kind = self._library.cells.get(cell["type"])
            pins = cell["connections"]
            if kind and kind.is_gate and len(kind.outputs) == 1:
                sources = [self._net(pins[pin.name][0], nets) for pin in kind.inputs]
                self.drivers[self._net(pins[kind.outputs[0].name][0], nets)] = cell, sources
            elif below := self._modules.get(cell["type"]):
                inner: dict[int, Net] = {}
                for name, port in below["ports"].items():
                    for bit, outer in zip(port["bits"], pins[name], strict=True):
                        outside = self._net(outer, nets)
                        # A connection between ports, or a constant, already has a net.
                        inside = bit if isinstance(bit, str) else inner.setdefault(bit, outside)
                        self._join(outside, inside)
                self._place(below, inner)
            else:
                self._ends += [self._net(bit, nets) for bits in pins.values() for bit in bits]

    def blif(self) -> str:
        """Return the network in the Berkeley logic interchange format."""
        begins, gates = dict[Net, None](), []
        for net, (cell, sources) in self.drivers.items():
            kind = self._library.cells[cell["type"]]
            begins |= dict.fromkeys(source for source in sources if source not in self.drivers)
            pins = zip([*kind.inputs, *kind.outputs], [*sources, net], strict=True)
            gates.append(" ".join([".gate", kind.name, *(f"{pin.name}=n{at}" for pin, at in pins)]))
        inputs, outputs = (" ".join(f"n{net}" for net in nets) for nets in (begins, self._ends))
        return "\n".join(
            [".model design", f".inputs {inputs}", f".outputs {outputs}", *gates, ".end", ""]
        )

    def take_sizes(self, blif: str) -> None:
        """Match each gate with ABC's output, from the endpoints backwards, and copy its type.

        ABC keeps only the names of the endpoints.
        """
        lines = blif.replace("\\\n", "").splitlines()
        found = {line.rpartition("=")[2]: line for line in lines if line.startswith(".gate")}
        names: dict[Net, str] = {}
        chosen: dict[int, tuple[dict[str, Any], Cell]] = {}
        waiting = [(net, f"n{net}") for net in self._ends]
        while waiting:
            net, name = waiting.pop()
            if names.setdefault(net, name) != name:
                raise YosysError(f"ABC changed the network: n{net} is {name} and {names[net]}")
            if net in self.drivers and name in found:
                _gate, kind, *pins = found.pop(name).split()
                cell, sources = self.drivers[net]
                new, nets = self._library.cells[kind], dict(pin.split("=") for pin in pins)
                self._compare(net, cell, new)
                _cell, largest = chosen.get(id(cell), (cell, new))
                chosen[id(cell)] = cell, max(largest, new, key=lambda kind: kind.area)
                named = (nets[pin.name] for pin in new.inputs)
                waiting += zip(sources, named, strict=True)
        if found:
            raise YosysError(f"ABC changed the network: {len(found)} gates are new")
        for cell, new in chosen.values():
            self._change(cell, new)

    def _compare(self, net: Net, cell: dict[str, Any], new: Cell) -> None:
        """Check that another cell has the same function."""
        old = self._library.cells[cell["type"]]
        if (old.truth_table, len(old.inputs)) != (new.truth_table, len(new.inputs)):
            raise YosysError(f"ABC changed the network: n{net} is driven by {new.name}")

    def _change(self, cell: dict[str, Any], new: Cell) -> None:
        """Replace a cell by another, whose pins may have other names: `and2b` is a `nor2b`."""
        old = self._library.cells[cell["type"]]
        pins = zip([*old.inputs, *old.outputs], [*new.inputs, *new.outputs], strict=True)
        cell["type"] = new.name
        cell["port_directions"] = {pin.name: pin.direction for pin in new.pins}
        cell["connections"] = {now.name: cell["connections"][then.name] for then, now in pins}
