"""Trees of buffers across modules that are mapped by themselves."""

from pathlib import Path
from typing import Any

import pytest

from synth.buffer_trees import LIMITS, buffer_trees
from synth.liberty import Library
from synth.mapped_design import Netlist
from tests.synth.designs import Broadcast, Pair
from tests.synth.netlists import most_pins, prove_equal, synthesise

SINKS = 60


def parts(unit: Any, library: Library, directory: Path, recipe: str) -> Netlist:
    """Map a unit whose module `Adder` is kept."""
    hierarchy = synthesise(unit, library, directory, flatten=False)
    kept = [module.name for module in hierarchy.modules[1:]]
    netlist = synthesise(unit, library, directory, recipe=recipe, kept=kept)
    assert [module.name for module in netlist.modules[1:]] == kept != []
    return netlist


@pytest.mark.parametrize("recipe", ["area", "speed"])
def test_no_net_drives_more_than_its_limit(recipe: str, library: Library, tmp_path: Path) -> None:
    netlist = parts(Broadcast(copies=70), library, tmp_path, recipe)
    assert 0 < most_pins(netlist) <= LIMITS[recipe].fan_out


@pytest.mark.parametrize("recipe", ["area", "speed"])
def test_the_netlist_does_what_the_source_does(
    recipe: str, library: Library, tmp_path: Path
) -> None:
    assert prove_equal(parts(Pair(width=4), library, tmp_path, recipe), tmp_path)
    assert prove_equal(
        parts(Broadcast(copies=20), library, tmp_path / "broadcast", recipe), tmp_path / "broadcast"
    )


class Gates:
    """A module of inverters with one input, as Yosys writes it; nets are numbers."""

    def __init__(self, library: Library) -> None:
        assert library.inverter
        self._inverter = library.inverter
        self._last = 1
        self.given = self._net()
        self.outputs: list[int] = []
        self.cells: dict[str, Any] = {}

    def _net(self) -> int:
        self._last += 1
        return self._last

    def chain(self, net: int, length: int) -> int:
        """Add a chain of inverters to a net; return the output of the last."""
        for _ in range(length):
            self.cells[f"inverter_{self._last}"] = {
                "type": self._inverter.name,
                "connections": {
                    self._inverter.inputs[0].name: [net],
                    self._inverter.outputs[0].name: [net := self._net()],
                },
            }
        return net

    def place(self, module: str, given: int, outputs: int) -> list[int]:
        """Add an instance of a module; return its output nets."""
        nets = [self._net() for _ in range(outputs)]
        connections = {"given": [given], "result": nets}
        self.cells["part"] = {"type": module, "connections": connections}
        return nets

    def written(self) -> dict[str, Any]:
        """Return the module."""
        ports = {
            "given": {"direction": "input", "bits": [self.given]},
            "result": {"direction": "output", "bits": self.outputs},
        }
        return {"ports": ports, "cells": self.cells, "netnames": {}}


def first_gates(module: dict[str, Any], library: Library) -> set[str]:
    """Return the inverters at the input itself, before any buffer."""
    assert library.inverter
    pin = library.inverter.inputs[0].name
    given = module["ports"]["given"]["bits"]
    return {
        name
        for name, cell in module["cells"].items()
        if cell["connections"].get(pin) == given and "buffer" not in name
    }


def test_what_has_most_ahead_is_at_the_root(library: Library) -> None:
    gates = Gates(library)
    for length in (*[1] * SINKS, 40):
        gates.outputs.append(gates.chain(gates.given, length))
    module = gates.written()
    late = list(module["cells"])[SINKS]
    assert buffer_trees({"modules": {"top": module}}, library, "speed") > SINKS // 12
    assert first_gates(module, library) == {late}


def test_what_is_ahead_in_other_modules_counts(library: Library) -> None:
    inner = Gates(library)
    inner.outputs = [inner.chain(inner.given, 1) for _ in range(SINKS)]
    outer = Gates(library)
    results = outer.place("inner", outer.chain(outer.given, 1), SINKS)
    # One result passes through a long chain; all others are outputs.
    outer.outputs = [*results[:7], outer.chain(results[7], 40), *results[8:]]
    module = inner.written()
    buffer_trees({"modules": {"outer": outer.written(), "inner": module}}, library, "speed")
    assert first_gates(module, library) == {list(module["cells"])[7]}


def test_a_small_netlist_has_no_buffer_that_it_does_not_need(library: Library) -> None:
    for recipe, limits in LIMITS.items():
        gates = Gates(library)
        gates.outputs = [gates.chain(gates.given, 1) for _ in range(limits.fan_out // 2)]
        assert buffer_trees({"modules": {"top": gates.written()}}, library, recipe) == 0
