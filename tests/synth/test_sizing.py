"""Sizes of a mapped design's cells by ABC."""

import json
from pathlib import Path
from typing import Any

import pytest

from hdl.yosys import YosysError
from synth.liberty import Library, find_library, read_library
from synth.mapped_design import Netlist
from synth.sizing import Network, size_cells
from tests.synth.designs import Broadcast
from tests.synth.netlists import TOP, synthesise

UPSIZE = ["upsize", "dnsize", "stime"]


@pytest.fixture(scope="module")
def library() -> Library:
    library = find_library()
    if not library.timed:
        pytest.skip("the library has no delays")
    return library


@pytest.fixture
def netlist(library: Library, tmp_path: Path) -> Netlist:
    return synthesise(Broadcast(copies=4), library, tmp_path, recipe="area")


def mapped(netlist: Netlist) -> dict[str, Any]:
    """Return what ABC gets to see of a netlist."""
    return json.loads((netlist.directory / f"{netlist.stem}.mapped.json").read_text())


def test_sizes_change_and_functions_do_not(library: Library, netlist: Netlist) -> None:
    before, after = mapped(netlist), mapped(netlist)
    fast = size_cells(after, library, netlist.directory, UPSIZE)
    assert 0 < fast < netlist.abc_delay_ps
    changed = 0
    cells = after["modules"][TOP]["cells"]
    for name, cell in before["modules"][TOP]["cells"].items():
        assert cell["connections"] == cells[name]["connections"]
        old, new = (library.cells.get(one["type"]) for one in (cell, cells[name]))
        if old and new:
            assert [pin.function for pin in old.outputs] == [pin.function for pin in new.outputs]
            changed += old.name != new.name
    assert changed > 0


def test_a_network_that_abc_changed_is_an_error(library: Library, netlist: Netlist) -> None:
    with pytest.raises(YosysError, match="ABC changed the network"):
        size_cells(mapped(netlist), library, netlist.directory, ["buffer -p -N 2"])


def test_a_command_that_abc_refuses_is_an_error(library: Library, netlist: Netlist) -> None:
    with pytest.raises(YosysError, match=r"ABC stopped:[^$]*unknown command 'upsized'"):
        size_cells(mapped(netlist), library, netlist.directory, ["upsized"])


CELLS = """library (two_names) {
  cell (nor2b) { area : 2; pin (A) { direction : input; } pin (B_N) { direction : input; }
    pin (Y) { direction : output; function : "!(A | !B_N)"; } }
  cell (and2b) { area : 4; pin (A_N) { direction : input; } pin (B) { direction : input; }
    pin (X) { direction : output; function : "!A_N & B"; } }
  cell (or2b) { area : 4; pin (A_N) { direction : input; } pin (B) { direction : input; }
    pin (X) { direction : output; function : "!A_N | B"; } }
  cell (inv_1) { area : 1; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "!A"; } }
  cell (inv_2) { area : 2; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "!A"; } }
}
"""


def network(directory: Path) -> tuple[Network, dict[str, Any]]:
    """Return one gate's network, and the gate."""
    (directory / "two_names.lib").write_text(CELLS)
    library = read_library(directory / "two_names.lib", origin="test")
    gate: dict[str, Any] = {"type": "nor2b", "connections": {"A": [2], "B_N": [3], "Y": [4]}}
    ports = {"y": {"direction": "output", "bits": [4]}}
    return Network({"top": {"cells": {"gate": gate}, "ports": ports}}, library), gate


def test_a_cell_of_the_same_function_may_call_its_pins_differently(tmp_path: Path) -> None:
    one, gate = network(tmp_path)
    assert ".gate nor2b A=n2 B_N=n3 Y=n4" in one.blif()
    one.take_sizes(".gate and2b A_N=n2 B=n3 X=n4\n")
    assert (gate["type"], gate["connections"]) == ("and2b", {"A_N": [2], "B": [3], "X": [4]})


def test_a_cell_of_another_function_is_an_error(tmp_path: Path) -> None:
    one, _gate = network(tmp_path)
    with pytest.raises(YosysError, match="ABC changed the network: n4 is driven by or2b"):
        one.take_sizes(".gate or2b A_N=n2 B=n3 X=n4\n")


def inverter(given: int, result: int) -> dict[str, Any]:
    """Return an inverter between two nets."""
    return {"type": "inv_1", "connections": {"A": [given], "Y": [result]}}


def ports(**bits: tuple[str, int | str]) -> dict[str, Any]:
    """Return ports of a bit each by their directions and nets."""
    return {name: {"direction": way, "bits": [bit]} for name, (way, bit) in bits.items()}


def two_places(directory: Path) -> tuple[Network, dict[str, Any]]:
    """Return a design with three instances of a module, and the inverter in the module.

    Two instances are in series, and one has a constant input.

    The module has a wire from port to port, and a constant.
    """
    (directory / "two_names.lib").write_text(CELLS)
    library = read_library(directory / "two_names.lib", origin="test")
    gate = inverter(2, 3)
    part = {
        "cells": {"gate": gate},
        "ports": ports(same=("output", 2), a=("input", 2), y=("output", 3), one=("output", "1")),
    }
    first, second, still = (
        {"type": "part", "connections": {"a": [a], "y": [y], "same": [same], "one": [one]}}
        for a, y, same, one in ((2, 3, 4, 5), (3, 6, 7, 8), ("0", 10, 11, 12))
    )
    last = {"type": "nor2b", "connections": {"A": [4], "B_N": [8], "Y": [9]}}
    other = {"type": "nor2b", "connections": {"A": [11], "B_N": [10], "Y": [13]}}
    top = {
        "cells": {"last": last, "other": other, "still": still, "second": second, "first": first},
        "ports": ports(a=("input", 2), y=("output", 6), z=("output", 9), zero=("output", 13)),
    }
    return Network({"top": top, "part": part}, library), gate


def gates(blif: str) -> set[tuple[str, ...]]:
    """Return a network's gates, each as its type and its nets."""
    lines = (line.split() for line in blif.splitlines() if line.startswith(".gate"))
    return {(kind, *(pin.split("=")[1] for pin in pins)) for _gate, kind, *pins in lines}


def test_net_crosses_modules(tmp_path: Path) -> None:
    blif = two_places(tmp_path)[0].blif()
    ((inputs,), (outputs,)) = (
        [line.split()[1:] for line in blif.splitlines() if line.startswith(start)]
        for start in (".inputs", ".outputs")
    )
    y, z, zero = outputs
    (given,) = set(inputs) - {"n0", "n1"}
    behind = {nets[1]: nets[2] for nets in gates(blif) if nets[0] == "inv_1"}
    between = behind[given]
    assert gates(blif) == {
        ("inv_1", given, between),
        ("inv_1", between, y),
        ("nor2b", given, "n1", z),
        ("inv_1", "n0", behind["n0"]),
        ("nor2b", "n0", behind["n0"], zero),
    }


def test_a_gate_gets_the_largest_size_of_its_places(tmp_path: Path) -> None:
    for larger in range(3):
        network, gate = two_places(tmp_path)
        lines = network.blif().splitlines()
        places = [at for at, line in enumerate(lines) if line.startswith(".gate inv_1")]
        lines[places[larger]] = lines[places[larger]].replace("inv_1", "inv_2")
        network.take_sizes("\n".join(lines))
        assert gate["type"] == "inv_2"
