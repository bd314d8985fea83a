from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth import timing
from synth.asic import elaborate, map_to_cells
from synth.debian import osu018
from synth.layout.lef import read_layers
from synth.liberty import GENERIC, Library, read_library
from synth.mapped_design import Netlist
from synth.synthesis import measure_design
from synth.timing import analyse, write_sdc
from synth.wires import WireLoad, default_wire_load, placed_wire_load
from tests.synth.test_timing import OSU, needs_tools

WIRE = WireLoad(name="wire", um_per_load=10.0, ff_per_um=3.0, ohm_per_um=0.0, source="test")


@pytest.fixture(scope="module")
def inverter(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    assert OSU is not None
    directory = tmp_path_factory.mktemp("inverter")
    source = directory / "inverter.v"
    source.write_text("module inverter(input clk, input d, output q); assign q = ~d; endmodule\n")
    library = read_library(OSU, origin="Debian")
    return map_to_cells(elaborate([source], "inverter", directory), library)


def _length(netlist: Netlist, wires: WireLoad | None = None) -> float:
    measured = analyse(netlist, wires=wires)
    assert measured is not None and measured.critical is not None
    return measured.critical.length_ps


@needs_tools
def test_a_wire_adds_its_capacitance_to_the_load(
    inverter: Netlist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 um of 3 fF/um delay the inverter like 30 fF more at its output."""
    alone, wired = _length(inverter), _length(inverter, WIRE)

    def heavier(path: Path, ports: set[str], *, load_ff: float, **options: float) -> None:
        write_sdc(path, ports, load_ff=load_ff + 30.0, **options)

    monkeypatch.setattr(timing, "write_sdc", heavier)
    assert wired == pytest.approx(_length(inverter), abs=0.01)
    assert wired > 1.2 * alone


@needs_tools
def test_a_wire_of_no_length_adds_nothing(inverter: Netlist) -> None:
    assert _length(inverter, replace(WIRE, um_per_load=0.0)) == _length(inverter)


@needs_tools
def test_length_follows_the_placement_area(inverter: Netlist) -> None:
    """The INVX1 of OSU018 takes 1.6 x 10 um: at 70 %, the side of its square is 4.78 um."""
    load = placed_wire_load(inverter)
    assert load.um_per_load == pytest.approx(5.9 * 4.7809, rel=1e-4)
    # Metal2 and metal3: 0.3 um * 0.019 fF/um2 + 2 * 0.06 fF/um, 0.3 * 0.013 + 2 * 0.054.
    assert load.ff_per_um == pytest.approx((0.1257 + 0.1119) / 2, rel=1e-4)
    assert load.ohm_per_um == pytest.approx(0.08 / 0.3, rel=1e-4)


def _library(text: Callable[[str], str], directory: Path) -> Library:
    """Return OSU018 with a changed text."""
    assert OSU is not None
    file = directory / "changed.lib"
    file.write_text(text(OSU.read_text()))
    return read_library(file, origin="test")


GROUP = """
  pulling_resistance_unit : "1kohm";
  wire_load ("other") { capacitance : 9; resistance : 9; slope : 9; fanout_length(1, 9); }
  wire_load ("small") {
    capacitance : 1.5e-4; resistance : 2.0e-3; slope : 5; fanout_length(1, 3.5);
  }
"""


@needs_tools
def test_default_wire_load_is_read_in_its_units(tmp_path: Path) -> None:
    assert OSU is not None
    assert default_wire_load(read_library(OSU, origin="Debian")) is None
    default = GROUP + '  default_wire_load : "small";\n  delay_model'
    library = _library(lambda text: text.replace("  delay_model", default, 1), tmp_path)
    load = default_wire_load(library)
    assert load is not None and load.name == "small"
    assert (load.um_per_load, load.ff_per_um, load.ohm_per_um) == pytest.approx((3.5, 0.15, 2.0))


@needs_tools
def test_rejects_an_undefined_default_wire_load(tmp_path: Path) -> None:
    default = '  default_wire_load : "absent";\n  delay_model'
    library = _library(lambda text: text.replace("  delay_model", default, 1), tmp_path)
    with pytest.raises(UserError, match="LIBERTY must define its default_wire_load, absent"):
        default_wire_load(library)


@needs_tools
def test_the_wired_clock_is_an_addition(tmp_path: Path) -> None:
    assert OSU is not None
    source = tmp_path / "flop.v"
    source.write_text(
        "module flop(input clk, input [3:0] d, output reg [3:0] q);\n"
        "always @(posedge clk) q <= q + d; endmodule\n"
    )
    library = read_library(OSU, origin="Debian")
    plain = measure_design([source], "flop", library, tmp_path / "plain")
    wired = measure_design([source], "flop", library, tmp_path / "wired", wires=True)
    for before, after in zip(plain.points, wired.points, strict=True):
        assert before.wired is None and after.wired is not None and after.timing is not None
        assert before.timing == after.timing
        assert after.wired.fmax_mhz is not None and after.timing.fmax_mhz is not None
        assert after.wired.fmax_mhz < after.timing.fmax_mhz
    assert '"wired"' in wired.file.read_text() and '"wired"' not in plain.file.read_text()


def test_rejects_wires_without_delays(tmp_path: Path) -> None:
    library = replace(read_library(GENERIC, origin="generic"), timed=False)
    with pytest.raises(UserError, match="WIRES=1 needs a library with delays, not"):
        measure_design([], "nothing", library, tmp_path, wires=True)


def test_rejects_a_file_without_routing_layers(tmp_path: Path) -> None:
    (tmp_path / "cells.lef").write_text("MACRO INVX1\nEND INVX1\n")
    with pytest.raises(UserError, match="LEF must be a LEF file with routing layers"):
        read_layers(tmp_path / "cells.lef")


@needs_tools
def test_layers_are_those_of_the_file() -> None:
    liberty = osu018(fetch=False)
    assert liberty is not None
    layers = read_layers(liberty.with_suffix(".lef"))
    assert [layer.name for layer in layers] == [f"metal{index}" for index in range(1, 7)]
    assert [layer.pitch for layer in layers] == [1, 0.8, 1, 0.8, 1, 1.6]
    assert layers[0].direction == "HORIZONTAL" and layers[5].direction == "VERTICAL"
