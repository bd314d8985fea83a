"""Units of the catalog that are laid out and checked: a small one, and one above the limit."""

from pathlib import Path

import pytest

from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from synth.asic import RECIPES, elaborate, map_to_cells
from synth.layout.flow import CELL_LIMIT, find_lef, lay_out
from synth.liberty import find_library
from tests.synth.test_layout_checks import needs_tools


@needs_tools
@pytest.mark.parametrize(
    ("top", "preset", "limit"),
    [
        ("argmax", "tiny", CELL_LIMIT),
        pytest.param("voting_engine", "tiny", 7000, marks=pytest.mark.full),
    ],
)
def test_a_unit_is_laid_out_without_errors(
    top: str, preset: str, limit: int, tmp_path: Path
) -> None:
    entry = entry_named(top)
    verilog = emit_unit(entry, preset, sources=True, directory=tmp_path).verilog
    library = find_library(None)
    netlist = map_to_cells(elaborate(verilog, top, tmp_path / "synth"), library, recipe=RECIPES[-1])
    lef = find_lef(None, None)
    facts = {"top": top}
    found = lay_out(netlist, lef, tmp_path / "layout", density=0.7, facts=facts, limit=limit)
    assert found.figures["routes_repeated"] == (netlist.cells <= CELL_LIMIT)
    assert found.checks is not None and found.checks.matches and not found.checks.drc
    assert {memory.name for memory in netlist.memories} <= set(found.figures["cut"])
    assert found.wired is not None and found.wireless is not None
    assert found.wired.fmax_mhz is not None and found.wireless.fmax_mhz is not None
    assert 0.5 < found.wired.fmax_mhz / found.wireless.fmax_mhz < 1.0
    assert found.wired.hold_slack_ps is not None and found.wired.hold_slack_ps > 0
    assert (tmp_path / "layout" / "die.png").stat().st_size > 20_000
