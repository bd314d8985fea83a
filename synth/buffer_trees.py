"""Buffer trees across modules that are mapped by themselves, built before cells have their sizes.

The mapper sees one module at a time: a net that leaves it counts as the least urgent, behind all
of its buffers, and the registers that a net ends at count as one. Here nets are followed through
all modules: what the ends of a net have ahead of them decides how near to its root they are.
"""

from bisect import insort
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from synth.buffering import Buffers, Loads, Sink, Sinks, add_sinks, innermost_first, input_ports
from synth.liberty import Library

BUFFER = 1.0
"""Delay of a buffer without its pins. The unit is that of a two-input NAND; another cell's is taken
to be in proportion to its area, as it has no size yet."""

PIN = 0.1
"""What a pin adds to the delay of what drives it."""

MARGIN = 4.0
"""Time beyond a buffer's delay that the less urgent half of a net must have to go behind one."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a net may drive.

    Parameters
    ----------
    fan_out : int
        Pins at most, behind an input port half of them.
    near : int
        Pins above which the less urgent ones go behind a buffer even so, if they have the time.
    """

    fan_out: int
    near: int


LIMITS = {
    "area": Limits(fan_out=16, near=16),
    "balanced": Limits(fan_out=16, near=16),
    "speed": Limits(fan_out=12, near=4),
}
"""By recipe."""


def buffer_trees(design: dict[str, Any], library: Library, recipe: str) -> int:
    """Give every net that drives more pins than its recipe allows a tree of buffers.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design without buffers as Yosys writes it in JSON, with memories as modules of
        their own; changed in place.
    library : Library
        The cells; clocks are ideal. One without a buffer leaves the design as it is.
    recipe : str
        What the design was mapped with, a key of `LIMITS`.

    Returns
    -------
    int
        Buffers added, each module counted once.
    """
    if not library.buffer:
        return 0
    limits = LIMITS[recipe]
    names = innermost_first(design["modules"])
    modules = {name: _Module(design["modules"][name], library, limits) for name in names}
    loads: dict[str, Loads] = {}
    # What is ahead of inputs is known from within a module, what is ahead of outputs from outside.
    for name, module in modules.items():
        loads[name] = module.follow(loads)
    for module in reversed(modules.values()):
        module.follow(loads)
        module.tell(modules)
    added = 0
    for name, module in modules.items():
        buffers = Buffers(module.content, library.buffer)
        loads[name] = module.follow(loads, buffers)
        added += buffers.added
    return added


class _Module:
    """One module: its gates from the ends to the beginnings, and what is ahead of its nets."""

    def __init__(self, content: dict[str, Any], library: Library, limits: Limits) -> None:
        self.content = content
        self._library, self._limits = library, limits
        self._unit = library.nand2_area
        self._outside: dict[int | str, float] = {}
        self._ahead: dict[int | str, float] = {}
        gates, self._others, drivers = {}, [], {}
        for name, cell in content["cells"].items():
            kind = library.cells.get(cell["type"])
            if kind and kind.is_gate:
                gates[name] = cell
                drivers |= {cell["connections"][pin.name][0]: name for pin in kind.outputs}
            else:
                self._others.append(cell)
        before = {
            name: [
                drivers[bit]
                for pin in library.cells[cell["type"]].inputs
                if (bit := cell["connections"][pin.name][0]) in drivers
            ]
            for name, cell in gates.items()
        }
        order = TopologicalSorter(before).static_order()
        self._gates = [gates[name] for name in order][::-1]

    def follow(self, loads: dict[str, Loads], buffers: Buffers | None = None) -> Loads:
        """Find what is ahead of each net, with trees; build them if there are `buffers`.

        `loads` are those of the modules below; returned are this one's.
        """
        sinks: Sinks = {}
        roots: dict[int | str, tuple[int, float]] = {}
        library, content = self._library, self.content
        limits = self._limits
        halved = Limits(fan_out=limits.fan_out // 2, near=limits.near)

        def root(net: int | str, within: Limits = limits) -> float:
            """Return the delay that is ahead of what drives a net, all of whose sinks are known."""
            pins, ahead = roots[net] = _tree(net, sinks.get(net, []), within, buffers)
            self._ahead[net] = max(ahead, self._outside.get(net, 0.0)) + PIN * pins
            return self._ahead[net]

        for cell in self._others:
            add_sinks(sinks, cell, library, loads)
        for cell in self._gates:
            kind = library.cells[cell["type"]]
            beyond = max(root(cell["connections"][pin.name][0]) for pin in kind.outputs)
            beyond += kind.area / self._unit
            add_sinks(sinks, cell, library, {}, beyond=beyond)
        inputs = input_ports(content)
        for _port, bits in inputs:
            for bit in bits:
                root(bit, halved)
        for net in [net for net in sinks if net not in roots]:
            root(net)
        return {port: [roots[bit] for bit in bits] for port, bits in inputs}

    def tell(self, modules: dict[str, "_Module"]) -> None:
        """Let the modules below know what is ahead of their outputs; the most of all places."""
        for cell in self._others:
            if below := modules.get(cell["type"]):
                for name, port in below.content["ports"].items():
                    if port["direction"] == "output":
                        for inner, net in zip(port["bits"], cell["connections"][name], strict=True):
                            ahead = self._ahead.get(net, 0.0)
                            below._outside[inner] = max(ahead, below._outside.get(inner, 0.0))


def _tree(
    net: int | str, ends: list[Sink], limits: Limits, buffers: Buffers | None
) -> tuple[int, float]:
    """Put the less urgent sinks of a net behind buffers; return the pins and the delay of its root.

    Again and again the least urgent ones get a buffer, which then is a sink among the others.
    """
    left = sorted(ends, key=lambda sink: -sink.ahead)
    total = sum(sink.pins for sink in left)
    while len(left) > 1 and total > limits.near:
        budget = limits.fan_out
        if total <= limits.fan_out:
            late = left[len(left) // 2 :]
            budget = sum(sink.pins for sink in late)
            # One pin alone would gain nothing.
            if budget < 2 or late[0].ahead + BUFFER + PIN * budget + MARGIN > left[0].ahead:
                break
        group, pins = [], 0
        while left and (pins < 2 or pins + left[-1].pins <= budget):
            group.append(left.pop())
            pins += group[-1].pins
        ahead = group[-1].ahead + BUFFER + PIN * pins
        sink = (
            buffers.add(net, group, ahead=ahead)
            if buffers
            else Sink(bits=[net], index=0, pins=1, ahead=ahead)
        )
        insort(left, sink, key=lambda sink: -sink.ahead)
        total += 1 - pins
    return total, left[0].ahead if left else 0.0
