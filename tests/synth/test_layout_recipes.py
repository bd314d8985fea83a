import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.errors import UserError
from synth.asic import RECIPES, elaborate, map_to_cells
from synth.layout import recipes
from synth.layout.recipes import main, measure_recipes, size_for_wires, write_liberty
from synth.liberty import GENERIC, find_library, read_library
from synth.mapped_design import Netlist
from synth.timing import analyse
from synth.wires import WireLoad, default_wire_load
from tests.synth.test_timing import needs_tools

SOURCE = """
module sums(input clk, input [5:0] a, input [5:0] b, output reg [7:0] q);
  always @(posedge clk) q <= {2'b01, a} + {b[0] ? a : b, 2'b00};
endmodule
"""

HEAVY = WireLoad(name="heavy", um_per_load=100.0, ff_per_um=1.0, ohm_per_um=0.0, source="test")
"""100 fF for each load, several times the input of a gate in OSU018."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sums") / "sums.v"
    file.write_text(SOURCE)
    return file


@pytest.fixture(scope="module")
def netlist(source: Path) -> Netlist:
    design = elaborate([source], "sums", source.parent / "fast")
    return map_to_cells(design, find_library(None), recipe=RECIPES[-1])


def _clock(netlist: Netlist, wires: WireLoad) -> float:
    timing = analyse(netlist, wires=wires)
    assert timing is not None and timing.fmax_mhz is not None
    return timing.fmax_mhz


@needs_tools
def test_sizing_for_long_wires_takes_larger_cells_and_is_faster(netlist: Netlist) -> None:
    sized = size_for_wires(netlist, HEAVY)
    assert sized.area_um2 > netlist.area_um2
    assert (sized.cells, sized.flops) == (netlist.cells, netlist.flops)
    assert _clock(sized, HEAVY) > 1.02 * _clock(netlist, HEAVY)


@needs_tools
def test_sizing_without_wires_changes_no_area(netlist: Netlist) -> None:
    """ABC has sized the netlist without wires before."""
    sized = size_for_wires(netlist, replace(HEAVY, um_per_load=0.0))
    assert sized.area_um2 == pytest.approx(netlist.area_um2, rel=0.02)
    assert sized.verilog != netlist.verilog and netlist.verilog.exists()


@needs_tools
def test_the_given_wire_load_is_the_only_default(netlist: Netlist, tmp_path: Path) -> None:
    library = netlist.library
    file = tmp_path / "own.lib"
    own = (
        '  wire_load ("own") { capacitance : 9; resistance : 9; slope : 9; fanout_length(1, 9); }\n'
        '  default_wire_load : "own";\n  default_wire_load_mode : "top";\n  delay_model'
    )
    file.write_text(library.path.read_text().replace("  delay_model", own, 1))
    other = read_library(file, origin="test")
    written = write_liberty(other, HEAVY, tmp_path)
    assert len(re.findall(r"\bdefault_wire_load\w*\s*:", written.read_text())) == 1
    found = default_wire_load(replace(other, path=written))
    assert found is not None and found.name != "own"
    assert (found.um_per_load, found.ff_per_um) == pytest.approx((100.0, 1.0))


@needs_tools
def test_every_recipe_has_three_clocks(source: Path, tmp_path: Path) -> None:
    found = measure_recipes([source], "sums", find_library(None), tmp_path)
    assert tuple(item.recipe for item in found) == RECIPES
    for item in found:
        assert item.wired_mhz < item.default_mhz and item.um_per_load > 10
        assert item.resized_mhz == pytest.approx(item.wired_mhz, rel=0.1)
    assert found[-1].default_mhz > found[0].default_mhz


def test_rejects_a_library_without_delays(tmp_path: Path) -> None:
    library = replace(read_library(GENERIC, origin="generic"), timed=False)
    with pytest.raises(UserError, match="recipes need a library with delays, not"):
        measure_recipes([], "nothing", library, tmp_path)


@needs_tools
@pytest.mark.parametrize(
    ("unit", "message"),
    [("argmac", "TOP must be one of"), ("argmax:big", "PRESET of argmax must be one of")],
)
def test_an_unknown_unit_ends_with_one_sentence(
    unit: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "measure_recipes", None)
    result = CliRunner().invoke(main, [unit])
    assert result.exit_code == 2 and message in " ".join(result.output.split())
