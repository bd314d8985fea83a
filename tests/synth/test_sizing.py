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
}
"""


def network(directory: Path) -> tuple[Network, dict[str, Any]]:
    """Return one gate's network, and the gate."""
    (directory / "two_names.lib").write_text(CELLS)
    library = read_library(directory / "two_names.lib", origin="test")
    gate: dict[str, Any] = {"type": "nor2b", "connections": {"A": [2], "B_N": [3], "Y": [4]}}
    ports = {"y": {"direction": "output", "bits": [4]}}
    return Network({"cells": {"gate": gate}, "ports": ports}, library), gate


def test_a_cell_of_the_same_function_may_call_its_pins_differently(tmp_path: Path) -> None:
    one, gate = network(tmp_path)
    assert ".gate nor2b A=n2 B_N=n3 Y=n4" in one.blif()
    one.take_sizes(".gate and2b A_N=n2 B=n3 X=n4\n")
    assert (gate["type"], gate["connections"]) == ("and2b", {"A_N": [2], "B": [3], "X": [4]})


def test_a_cell_of_another_function_is_an_error(tmp_path: Path) -> None:
    one, _gate = network(tmp_path)
    with pytest.raises(YosysError, match="ABC changed the network: n4 comes from or2b"):
        one.take_sizes(".gate or2b A_N=n2 B=n3 X=n4\n")
