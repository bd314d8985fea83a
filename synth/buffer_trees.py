"""Buffer trees across separately mapped modules, built before cells are sized.

The mapper processes one module at a time. It treats a net that ends at an output port as least
urgent, at the end of its buffer tree, and all registers at the end of a net as one sink. This
module traces nets through all modules: the delay downstream of each sink determines its distance
from the root of the tree.
"""

from bisect import insort
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from synth.buffering import Buffers, Loads, Sink, Sinks, add_sinks, innermost_first, input_ports
from synth.liberty import Library

BUFFER = 1.0
"""Delay of a buffer without its load, in units of a two-input NAND's delay. Delays of other cells
are estimated in proportion to their areas, because they have no size yet."""

PIN = 0.1
"""Delay that each driven pin adds to its driver."""

MARGIN = 4.0
"""Slack, in addition to a buffer's delay, at which the less urgent half of a net gets a buffer."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the number of pins that a net drives.

    Parameters
    ----------
    fan_out : int
        Maximum number of pins; half of it for the net of an input port.
    near : int
        Number of pins above which less urgent sinks get a buffer, if they have slack.
    """

    fan_out: int
    near: int


LIMITS = {
    "area": Limits(fan_out=16, near=16),
    "balanced": Limits(fan_out=16, near=16),
    "speed": Limits(fan_out=12, near=4),
}
"""The limits of each recipe."""


def buffer_trees(design: dict[str, Any], library: Library, recipe: str) -> int:
    """Insert a buffer tree into every net that exceeds the limits of a recipe.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design without buffers in Yosys's JSON format, with each memory as a separate
        module; changed in place.
    library : Library
        The cells; clocks are ideal. Without a buffer cell, the design is not changed.
    recipe : str
        The recipe of the mapping, a key of `LIMITS`.

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
    # The downstream delay of inputs depends on the module, that of outputs on its parents.
    for name, module in modules.items():
        loads[name] = module.follow(loads)
    for module in reversed(modules.values()):
        module.follow(loads)
        module.export_delays(modules)
    added = 0
    for name, module in modules.items():
        buffers = Buffers(module.content, library.buffer)
        loads[name] = module.follow(loads, buffers)
        added += buffers.added
    return added


class _Module:
    """One module: its gates in reverse topological order, and the downstream delay of its nets."""

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
        """Compute the downstream delay of each net with its tree; build the trees with `buffers`.

        `loads` are the loads of the submodules' ports; the result is the loads of this module's.
        """
        sinks: Sinks = {}
        roots: dict[int | str, tuple[int, float]] = {}
        library, content = self._library, self.content
        limits = self._limits
        halved = Limits(fan_out=limits.fan_out // 2, near=limits.near)

        def root(net: int | str, within: Limits = limits) -> float:
            """Return the downstream delay of a net's driver; all sinks must be known."""
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

    def export_delays(self, modules: dict[str, "_Module"]) -> None:
        """Update the delays downstream of the submodules' outputs, the maximum over instances."""
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
    """Drive the less urgent sinks of a net by buffers; return the pins and the delay of its root.

    Each iteration groups the least urgent sinks into one buffer, which replaces them as a sink.
    """
    left = sorted(ends, key=lambda sink: -sink.ahead)
    total = sum(sink.pins for sink in left)
    while len(left) > 1 and total > limits.near:
        budget = limits.fan_out
        if total <= limits.fan_out:
            late = left[len(left) // 2 :]
            budget = sum(sink.pins for sink in late)
            # A buffer for a single pin would not reduce the load.
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
