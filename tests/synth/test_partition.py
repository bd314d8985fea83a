"""Which modules of a large design are kept."""

from collections.abc import Mapping
from pathlib import Path

from synth.asic import elaborate, map_to_cells
from synth.liberty import find_library
from synth.mapped_design import ModuleArea
from synth.partition import kept_modules
from tests.synth.designs import Pair, emit

TOP = "design_under_test"


def module(name: str, cells: int, below: Mapping[str, int] | None = None) -> ModuleArea:
    return ModuleArea(
        name=name,
        instances=1,
        area_um2=cells,
        sequential_um2=0,
        cells=cells,
        flops=0,
        memory_bits=0,
        below=dict(below or {}),
    )


MODULES = (
    module("top", 5, {"array": 1, "queue": 2, "control": 1}),
    module("array", 20, {"lane": 8, "queue": 1}),
    module("lane", 10, {"adder": 4}),
    module("adder", 30),
    module("queue", 7),
    module("control", 90, {"queue": 1}),
)


def test_small_design_is_flattened() -> None:
    assert kept_modules(MODULES, 5 + (20 + 8 * 130 + 7) + 2 * 7 + 97) == ()


def test_what_fits_stays_and_the_small_ones_go_into_the_top() -> None:
    # The array is too large and is flattened into the top, which then has space for all modules
    # except the lanes.
    assert kept_modules(MODULES, 150) == ("lane",)


def test_the_top_takes_in_no_more_than_the_limit() -> None:
    # Top and array have 25 cells and queues 21; control's 97 would exceed the limit.
    assert kept_modules(MODULES, 130) == ("control", "lane")


def test_what_is_kept_is_one_module_without_those_below(tmp_path: Path) -> None:
    files = emit(Pair(width=8), tmp_path / "rtl")
    hierarchy = map_to_cells(elaborate(files, TOP, tmp_path, flatten=False), find_library())
    kept = kept_modules(hierarchy.modules, max(m.cells for m in hierarchy.modules))
    netlist = map_to_cells(elaborate(files, TOP, tmp_path, kept=kept), find_library())
    assert [m.name for m in netlist.modules[1:]] == list(kept) != []
    assert netlist.flops == hierarchy.flops
