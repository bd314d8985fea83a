"""A flattened mapped netlist: cells, and numbered nets between them."""

import json
from dataclasses import dataclass, field
from typing import Any

from synth.mapped_design import Netlist


@dataclass(frozen=True, kw_only=True)
class FlatCell:
    """One library cell: its path in OpenSTA's notation, and the net at each pin."""

    path: str
    kind: str
    nets: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class FlatNetlist:
    """All cells of a design, and the names of their nets.

    Parameters
    ----------
    cells : list[FlatCell]
        The library's cells; memories are none.
    names : list[list[str]]
        The names of each net in all modules that contain it, as paths below the top module. Nets 0
        and 1 are the constants.
    same : dict[int, int]
        For each net that a module connects to another, the representative of both.
    ports : dict[str, int]
        The nets of the top module's inputs.
    memories : set[int]
        The nets that memories drive.
    """

    cells: list[FlatCell] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=lambda: [[], []])
    ports: dict[str, int] = field(default_factory=dict)
    memories: set[int] = field(default_factory=set)
    same: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, netlist: Netlist) -> "FlatNetlist":
        """Read a mapped netlist and flatten it, module by module."""
        design = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())
        flat = cls()
        top = design["modules"][netlist.top]
        outside = {bit: flat._net() for port in top["ports"].values() for bit in _nets(port)}
        for name, port in top["ports"].items():
            bits = port["bits"]
            for index, bit in enumerate(bits):
                if port["direction"] == "input" and isinstance(bit, int):
                    own = f"{name}[{index}]" if len(bits) > 1 else name
                    flat.ports[own] = outside[bit]
        memories = {memory.module for memory in netlist.memories}
        flat._flatten(design["modules"], netlist, memories, netlist.top, [], outside)
        return flat._united()

    def _net(self) -> int:
        """Create a net."""
        self.names.append([])
        return len(self.names) - 1

    def _one(self, net: int) -> int:
        """Return the representative of a net."""
        while net in self.same:
            net = self.same[net]
        return net

    def _tie(self, left: int, right: int) -> None:
        """Merge two nets, such as an output port that a module connects to an input port."""
        low, high = sorted((self._one(left), self._one(right)))
        if low != high:
            self.same[high] = low

    def _united(self) -> "FlatNetlist":
        """Return the netlist in which merged nets have one number."""
        for net in self.same:
            self.names[self._one(net)] += self.names[net]
        for cell in self.cells:
            cell.nets.update({pin: self._one(net) for pin, net in cell.nets.items()})
        return FlatNetlist(
            cells=self.cells,
            names=self.names,
            ports={name: self._one(net) for name, net in self.ports.items()},
            memories={self._one(net) for net in self.memories},
        )

    def _flatten(
        self,
        modules: dict[str, Any],
        netlist: Netlist,
        memories: set[str],
        module: str,
        path: list[str],
        bound: dict[int, int],
    ) -> None:
        """Add a module's cells and names; `bound` contains the nets of its ports."""
        content, prefix = modules[module], "".join(f"{name}." for name in path)
        nets = dict(bound)

        def number(bit: int | str) -> int:
            if isinstance(bit, str):
                return int(bit == "1")
            if bit not in nets:
                nets[bit] = self._net()
            return nets[bit]

        for name, wire in content["netnames"].items():
            bits = wire["bits"]
            for index, bit in enumerate(bits):
                if isinstance(bit, int):
                    where = index + wire.get("offset", 0)
                    own = f"{prefix}{name}[{where}]" if len(bits) > 1 else prefix + name
                    self.names[number(bit)].append(own)
        for name, cell in content["cells"].items():
            kind, connections = cell["type"], cell["connections"]
            if kind in netlist.library.cells:
                pins = {pin: number(bits[0]) for pin, bits in connections.items() if bits}
                where = "/".join([*path, name])
                self.cells.append(FlatCell(path=where, kind=kind, nets=pins))
            elif kind in memories:
                ports = modules[kind]["ports"]
                given = [pin for pin in connections if ports[pin]["direction"] == "output"]
                self.memories.update(number(bit) for pin in given for bit in connections[pin])
            elif kind in modules:
                inner: dict[int, int] = {}
                for pin, bits in connections.items():
                    for inside, outside in zip(
                        modules[kind]["ports"][pin]["bits"], bits, strict=True
                    ):
                        if isinstance(inside, int):
                            self._tie(inner.setdefault(inside, number(outside)), number(outside))
                        elif isinstance(outside, int):
                            self._tie(int(inside == "1"), number(outside))
                self._flatten(modules, netlist, memories, kind, [*path, name], inner)


def _nets(port: dict[str, Any]) -> list[int]:
    """Return the nets of a port, without constants."""
    return [bit for bit in port["bits"] if isinstance(bit, int)]
