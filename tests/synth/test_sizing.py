"""Sizes of a mapped design's cells by ABC."""

import json
from pathlib import Path
from typing import Any

import pytest

from hdl.yosys import YosysError
from synth.liberty import Library, find_library
from synth.mapped_design import Netlist
from synth.sizing import size_cells
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
