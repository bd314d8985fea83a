import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hdl.errors import UserError
from synth import synthesis
from synth.asic import RECIPES, elaborate, map_to_cells
from synth.liberty import GENERIC, Library, find_library, read_library
from synth.synthesis import _meet, measure_design
from systola.synthesis import FLAT
from tests.synth.designs import Adder, Counter, Pair, emit
from tests.synth.netlists import TOP, prove_equal, synthesise


@pytest.fixture(scope="module")
def library() -> Library:
    return read_library(GENERIC, origin="test")


def test_area_is_the_same_in_every_run(library: Library, tmp_path: Path) -> None:
    first = synthesise(Pair(width=8), library, tmp_path / "first")
    second = synthesise(Pair(width=8), library, tmp_path / "second")
    assert first.area_um2 == second.area_um2
    assert first.verilog.read_text() == second.verilog.read_text()


def test_a_memory_is_kept_apart_and_adds_no_flip_flop(library: Library, tmp_path: Path) -> None:
    without = synthesise(Counter(), library, tmp_path / "without")
    with_memory = synthesise(Counter(memory=True), library, tmp_path / "with")
    as_flops = synthesise(
        Counter(memory=True), library, tmp_path / "as_flops", memories_as_flops=True
    )
    assert without.flops == with_memory.flops == 8
    assert (without.memory_bits, with_memory.memory_bits) == (0, 16 * 8)
    (memory,) = with_memory.memories
    assert (memory.words, memory.width, memory.instances) == (16, 8, 1)
    assert f"module {memory.module}(" in with_memory.verilog.read_text()
    assert (as_flops.memory_bits, as_flops.flops) == (0, 8 + 8 + 16 * 8)


def test_modules_are_counted_once_and_add_up(library: Library, tmp_path: Path) -> None:
    netlist = synthesise(Pair(width=8), library, tmp_path, flatten=False)
    top, adder = netlist.modules
    assert (top.name, top.instances, top.flops) == (TOP, 1, 0)
    assert (adder.instances, adder.flops) == (2, 8)
    assert netlist.flops == 16
    assert netlist.area_um2 == top.area_um2 + 2 * adder.area_um2
    assert netlist.sequential_um2 == 16 * library.cells["DFF"].area


FAULTS = {
    "combinational loop": "assign q = d ^ (q & c);",
    "latch": "reg l; always @* if (c) l = d; assign q = l;",
    "wire with two drivers": "assign q = c; assign q = d;",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_structural_fault_is_an_error(fault: str, tmp_path: Path) -> None:
    source = tmp_path / "faulty.v"
    source.write_text(f"module faulty(input c, input d, output q); {FAULTS[fault]} endmodule\n")
    with pytest.raises(UserError, match=f"TOP=faulty must have no {fault}"):
        elaborate([source], "faulty", tmp_path / "synth")


def test_a_loop_through_two_modules_is_an_error_without_flattening(tmp_path: Path) -> None:
    source = tmp_path / "ring.v"
    source.write_text(
        "module half(input i, input e, output o); assign o = ~(i & e); endmodule\n"
        "module ring(input e, output q); wire p;\n"
        "half a(.i(q), .e(e), .o(p)); half b(.i(p), .e(e), .o(q)); endmodule\n"
    )
    with pytest.raises(UserError, match="combinational loop"):
        elaborate([source], "ring", tmp_path / "synth", flatten=False)


def test_a_near_miss_changes_the_target_noticeably() -> None:
    """A target 0.05 ps shorter would give the same netlist again."""
    targets: list[float] = []

    def point(recipe: str, target_ps: float) -> Any:
        targets.append(target_ps)
        path = SimpleNamespace(slack_ps=-0.05 if target_ps > 1980 else 3.0)
        netlist = SimpleNamespace(recipe=recipe, target_ps=target_ps)
        return SimpleNamespace(timing=SimpleNamespace(paths=[path]), netlist=netlist)

    assert _meet(point, 2000.0).netlist.target_ps == 1980
    assert targets == [2000, 1980]


@pytest.mark.parametrize("period", [0, -5.0])
def test_a_period_must_be_positive(period: float, library: Library, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="PERIOD must be a positive number of picoseconds, not"):
        measure_design([], TOP, library, tmp_path, period_ps=period)


@pytest.mark.parametrize("memory", [False, True])
def test_the_netlist_does_what_the_source_does(
    memory: bool, library: Library, tmp_path: Path
) -> None:
    assert prove_equal(synthesise(Counter(width=4, memory=memory), library, tmp_path), tmp_path)


def test_the_proof_of_equality_can_fail(library: Library, tmp_path: Path) -> None:
    netlist = synthesise(Counter(width=4), library, tmp_path)
    assert not prove_equal(netlist, tmp_path, invert_first_data_pin)


def invert_first_data_pin(netlist: str) -> str:
    """Put an inverter before the first register of a netlist."""
    changed, count = re.subn(r"\.D\((.+)\)", r".D(~\1)", netlist, count=1)
    assert count == 1
    return changed


def test_delay_optimised_netlist_keeps_the_adders_prefix_structure(tmp_path: Path) -> None:
    library = find_library()
    if not library.timed:
        pytest.skip("the library has no delays")
    files = emit(Adder(width=48), tmp_path / "rtl")
    design = elaborate(files, TOP, tmp_path / "synth")
    area, balanced, speed = (
        map_to_cells(design, library, recipe=recipe).abc_delay_ps for recipe in RECIPES
    )
    assert speed < 0.8 * balanced < 0.8 * area


def test_a_large_design_keeps_modules_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = find_library()
    files = emit(Pair(width=8), tmp_path / "rtl")
    monkeypatch.setattr(synthesis, "FLATTEN_LIMIT", 1)
    for asked, form in ((None, "hierarchy"), *((form, form) for form in FLAT.values())):
        result = measure_design(files, TOP, library, tmp_path, form=asked)
        assert json.loads(result.file.read_text())["form"] == form
        netlist = result.headline.netlist.verilog.read_text()
        assert netlist.count("endmodule") == (1 if form == "flat" else 2)


def test_a_small_design_in_parts_is_one_part(tmp_path: Path) -> None:
    files = emit(Pair(width=8), tmp_path / "rtl")
    result = measure_design(files, TOP, find_library(), tmp_path, form="parts")
    assert json.loads(result.file.read_text())["form"] == "parts"
    assert result.headline.netlist.verilog.read_text().count("endmodule") == 1


def test_synth_json_has_what_it_promises(tmp_path: Path) -> None:
    library = find_library()
    files = emit(Pair(width=8), tmp_path / "rtl")
    result = measure_design(files, TOP, library, tmp_path, preset="tiny")
    data = json.loads(result.file.read_text())
    kept = tmp_path / "synth" / library.name / "synth.json"
    assert json.loads(kept.read_text()) == data
    assert data["top"] == TOP and data["preset"] == "tiny"
    for key in ("liberty", "corner", "tools", "modules", "cells", "memory_bits", "period_ps"):
        assert key in data
    assert data["nand2_equivalents"] > 0
    assert data["flops"] == 16
    assert not Path(data["liberty_file"]).is_absolute()
    if library.timed:
        assert data["area_um2"] == pytest.approx(data["logic_um2"] + data["sequential_um2"])
        assert [point["recipe"] for point in data["points"]] == ["area", "speed"]
