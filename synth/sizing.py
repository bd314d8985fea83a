"""Sizes of a mapped design's cells, chosen by ABC when all buffers are in place."""

import re
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from hdl.yosys import YosysError, run_abc
from synth.liberty import Cell, Library


def size_cells(
    design: dict[str, Any], library: Library, directory: Path, commands: Sequence[str]
) -> float:
    """Give the gates of each module the sizes that ABC's commands choose.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design as Yosys writes it in JSON; types of cells are changed in place.
    library : Library
        The cells.
    directory : Path
        Where ``abc.constr`` is and ABC's files go.
    commands : Sequence[str]
        For each module; they neither add gates nor remove any.

    Returns
    -------
    float
        The longest path inside a module in picoseconds.

    Raises
    ------
    YosysError
        If ABC stops, or the gates are not the same any more.
    """
    unused = " ".join(f"-X {cell}" for cell in library.dont_use)
    lines = [f'read_lib -w {unused} "{library.path}"', "read_constr abc.constr"]
    networks = {}
    for number, module in enumerate(design["modules"].values()):
        network = Network(module, library)
        if network.drivers:
            networks[number] = network
            (directory / f"unsized_{number}.blif").write_text(network.blif())
            read, write = f"read_blif unsized_{number}.blif", f"write_blif sized_{number}.blif"
            lines += [read, *commands, write]
    output = run_abc(lines, directory=directory, log=directory / "sizing.log")
    for number, network in networks.items():
        network.take_sizes((directory / f"sized_{number}.blif").read_text())
    return max(map(float, re.findall(r"Delay = +([\d.]+) ps", output)), default=0.0)


class Network:
    """A module's gates between registers, memories, modules and ports, as ABC has them.

    Nets are called by their numbers; `drivers` are the gates by their outputs.
    """

    def __init__(self, module: dict[str, Any], library: Library) -> None:
        self._library = library
        self.drivers: dict[str, dict[str, Any]] = {}
        others = []
        for cell in module["cells"].values():
            kind = library.cells.get(cell["type"])
            if kind and kind.is_gate and len(kind.outputs) == 1:
                self.drivers[self._nets(cell)[kind.outputs[0].name]] = cell
            else:
                others.append(cell["connections"])
        others += [{name: port["bits"]} for name, port in module["ports"].items()]
        places = (bits for connections in others for bits in connections.values())
        elsewhere = dict.fromkeys(f"n{bit}" for bits in places for bit in bits)
        self._ends = [net for net in elsewhere if net in self.drivers]

    def _nets(self, cell: dict[str, Any]) -> dict[str, str]:
        """Return a gate's nets by its pins."""
        return {pin: f"n{bits[0]}" for pin, bits in cell["connections"].items()}

    def _change(self, net: str, new: Cell) -> None:
        """Let another cell drive a net; it may call its pins differently, as `and2b` is `nor2b`."""
        cell = self.drivers[net]
        old = self._library.cells[cell["type"]]
        if (old.truth_table, len(old.inputs)) != (new.truth_table, len(new.inputs)):
            raise YosysError(f"ABC changed the network: {net} comes from {new.name}")
        pins = zip([*old.inputs, *old.outputs], [*new.inputs, *new.outputs], strict=True)
        cell["type"] = new.name
        cell["port_directions"] = {pin.name: pin.direction for pin in new.pins}
        cell["connections"] = {now.name: cell["connections"][then.name] for then, now in pins}

    def _sources(self, net: str) -> dict[str, str]:
        """Return the nets that a gate's output follows from, by pin; none of another net."""
        if net not in self.drivers:
            return {}
        cell = self.drivers[net]
        nets = self._nets(cell)
        return {pin.name: nets[pin.name] for pin in self._library.cells[cell["type"]].inputs}

    def blif(self) -> str:
        """Return the network in the Berkeley logic interchange format."""
        before = {net: self._sources(net).values() for net in self.drivers}
        order = list(TopologicalSorter(before).static_order())
        begins = [net for net in order if net not in self.drivers]
        gates = []
        for net in order:
            if net in self.drivers:
                cell = self.drivers[net]
                pins = " ".join(f"{pin}={name}" for pin, name in self._nets(cell).items())
                gates.append(f".gate {cell['type']} {pins}")
        lines = [".model module", ".inputs " + " ".join(begins), ".outputs " + " ".join(self._ends)]
        return "\n".join([*lines, *gates, ".end", ""])

    def take_sizes(self, blif: str) -> None:
        """Find each gate in what ABC wrote, from the ends backwards, and take its type.

        ABC keeps the names of the ends only.
        """
        found: dict[str, tuple[str, dict[str, str]]] = {}
        for line in blif.replace("\\\n", "").splitlines():
            match line.split():
                case [".gate", kind, *pins]:
                    nets = dict(pin.split("=") for pin in pins)
                    (output,) = self._library.cells[kind].outputs
                    found[nets.pop(output.name)] = kind, nets
        names: dict[str, str] = {}
        waiting = [(net, net) for net in self._ends]
        while waiting:
            net, name = waiting.pop()
            if names.setdefault(net, name) != name:
                raise YosysError(f"ABC changed the network: {net} is {name} and {names[net]}")
            if net in self.drivers and name in found:
                kind, nets = found.pop(name)
                self._change(net, self._library.cells[kind])
                waiting += [(source, nets[pin]) for pin, source in self._sources(net).items()]
        if found:
            raise YosysError(f"ABC changed the network: {len(found)} gates are new")
