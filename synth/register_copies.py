"""Copies of registers that drive many pins, made before buffer trees.

Yosys merges equal registers, also those that a design repeats to shorten their nets. This module
undoes it for the registers with many loads: each copy has a part of the pins, and its buffer tree
has fewer levels. The copies have the inputs of the original.
"""

from typing import Any

from synth.buffering import Sink, Sinks, modules_with_sinks, unused_net
from synth.liberty import Library

PINS = 144
"""Maximum number of pins per copy: two levels of buffers of twelve pins each."""

COPIES = 12
"""Maximum number of copies of a register, all of which are pins of the net of its input."""


def copy_registers(design: dict[str, Any], library: Library) -> int:
    """Copy each register whose output drives more than `PINS` pins of its module.

    Parameters
    ----------
    design : dict[str, Any]
        A mapped design without buffers in Yosys's JSON format, with each memory as a separate
        module; changed in place. Pins in submodules count.
    library : Library
        The cells; clocks are ideal.

    Returns
    -------
    int
        Registers added, each module counted once.
    """
    return sum(
        _copy_in(module, library, sinks) for module, sinks in modules_with_sinks(design, library)
    )


def _copy_in(module: dict[str, Any], library: Library, sinks: Sinks) -> int:
    """Copy the registers of one module; return the number of copies."""
    unused, copies = unused_net(module), dict[str, Any]()
    for name, cell in module["cells"].items():
        kind = library.cells.get(cell["type"])
        if not kind or not kind.state:
            continue
        pins = cell["connections"]
        for output in kind.outputs:
            net = pins.get(output.name, [""])[0]
            for share in _shares(sinks.get(net, []))[1:]:
                for sink in share:
                    sink.bits[sink.index] = unused
                # Only the copied output is connected: the others remain those of the original.
                connections = {pin.name: [*pins[pin.name]] for pin in kind.inputs}
                copies[f"{name}_copy_{unused}"] = {
                    **cell,
                    "connections": connections | {output.name: [unused]},
                }
                unused += 1
    module["cells"] |= copies
    return len(copies)


def _shares(sinks: list[Sink]) -> list[list[Sink]]:
    """Divide the sinks of a register in order into shares of about equal numbers of pins."""
    total = sum(sink.pins for sink in sinks)
    number = min(-(-total // PINS), COPIES)
    shares: list[list[Sink]] = [[] for _ in range(max(number, 1))]
    before = 0
    for sink in sinks:
        shares[before * len(shares) // total].append(sink)
        before += sink.pins
    return [share for share in shares if share]
