"""Driver of a unit without streams: inputs from an array, outputs recorded, in every cycle."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbenches.packing import pack, to_integers
from testbenches.streams import Port, read

NEVER_MOVES = 1 << 40
"""Timeout of a bench: a unit without streams has no transfers."""


class CycleDriver:
    """Drive inputs and record outputs in every cycle, as a part of a bench.

    Parameters
    ----------
    dut : Any
        The design under test.
    shapes : Mapping[str, ShapeLike]
        Shapes of the inputs by name.
    outputs : tuple[str, ...]
        Names of the outputs to record.
    """

    def __init__(self, dut: Any, shapes: Mapping[str, Any], outputs: tuple[str, ...]) -> None:
        self.shapes = shapes
        self.ports = {name: Port(getattr(dut, name)) for name in shapes}
        self.outputs = {name: Port(getattr(dut, name)) for name in outputs}
        self.waiting: dict[str, list[int]] = {}
        self.cycle = 0
        self.recorded: dict[str, list[int]] = {name: [] for name in self.outputs}
        self.clear()

    def clear(self) -> None:
        """Discard pending values; inputs are 0 until new values are queued."""
        self.waiting = {}
        self.cycle = 0
        self.recorded = {name: [] for name in self.outputs}
        for port in self.ports.values():
            port.value = 0

    def send(self, values: Mapping[str, np.ndarray]) -> None:
        """Queue the values of all inputs, one row per cycle."""
        self.waiting = {
            name: to_integers(pack(self.shapes[name], value)) for name, value in values.items()
        }

    def drive(self) -> None:
        """Set the cycle's inputs; the last values are held."""
        for name, values in self.waiting.items():
            self.ports[name].value = values[min(self.cycle, len(values) - 1)]

    def sample(self) -> None:
        """Record the outputs."""
        for name, port in self.outputs.items():
            self.recorded[name].append(read(port))
        self.cycle += 1
