"""The models of large designs have the results and the cycles of the others."""

from pathlib import Path

import numpy as np
import pytest

from hdl.catalog import entry_named
from testbenches import large_designs
from testbenches.harness import Harness
from testbenches.kelle.eviction.evictor_wavefronts import step_wavefronts, tabulate
from testbenches.kelle.eviction.tb_systolic_evictor import real_steps
from testbenches.long_run import LongRun
from testbenches.packing import from_integers, unpack
from testbenches.veda.decode_texts import mixed_layers
from tests.testbenches.test_harness import run_veda

pytestmark = pytest.mark.depends("systolic_evictor", "veda")

CHILD = """\
module child(clk, a, b);
  input clk;
  input [7:0] a;
  output [7:0] b;
endmodule
"""
MIDDLE = """\
module middle(clk, rst, c);
  input clk;
  input rst;
  input c;
  child one (
  );
  child two (
  );
endmodule
"""
TOP = """\
module top(clk);
  input clk;
  middle first (
  );
  middle \\second[0]  (
  );
endmodule
"""


def large(patch: pytest.MonkeyPatch, *, copies: int = 2) -> None:
    """Let each design with repeated modules count as large."""
    patch.setattr(large_designs, "LARGE", 0)
    patch.setattr(large_designs, "COPIES", copies)
    patch.setattr(large_designs, "MODULE_BYTES", 0)


def test_repeated_modules_are_counted_through_the_hierarchy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [CHILD, MIDDLE, TOP]
    assert large_designs.repeated_modules(texts, "top") == {}
    large(monkeypatch, copies=4)
    assert large_designs.repeated_modules(texts, "top") == {"child": ["a"]}
    large(monkeypatch)
    assert large_designs.repeated_modules(texts, "top") == {"child": ["a"], "middle": ["c"]}
    monkeypatch.setattr(large_designs, "MODULE_BYTES", len(MIDDLE) - 1)
    assert large_designs.repeated_modules(texts, "top") == {"middle": ["c"]}
    size = 4 * (len(CHILD) - 1) + 2 * (len(MIDDLE) - 1) + len(TOP) - 1
    monkeypatch.setattr(large_designs, "LARGE", size)
    assert large_designs.repeated_modules(texts, "top")
    monkeypatch.setattr(large_designs, "LARGE", size + 1)
    assert not large_designs.repeated_modules(texts, "top")


def run_evictor(seed: int) -> tuple[Path, LongRun]:
    """Find the victims of real scores; return the compiled program and the results."""
    entry = entry_named("systolic_evictor")
    p = entry.parameters("tiny")
    steps = real_steps(p)[0]
    table = tabulate((wave for step in steps for wave in step_wavefronts(step, p)), p)
    harness = Harness.compiled(entry, p)
    run = harness.run(
        {"wavefronts": from_integers(table.headers, 4 if p.halves else 3)},
        {"victims": len(table.victims)},
        driven={"lanes": table.lanes.reshape(len(table.lanes), -1)},
        record=["updates"],
        seed=seed,
    )
    # The random initial state of the two models differs, and so do values that are not valid.
    updates = unpack(
        p.update_layout, run.outputs["updates"].reshape(-1, p.rows, p.update_layout.size)
    )
    victims = unpack(p.victim_layout, run.outputs["victims"])
    run.outputs["updates"] = np.where(updates["valid"], updates["importance"], 0)
    run.outputs["updated"] = updates["valid"]
    run.outputs["victims"] = np.where(victims["found"], victims["index"], -1)
    run.outputs["importances"] = np.where(victims["found"], victims["importance"], 0)
    return harness.program, run


def equal(found: LongRun, expected: LongRun) -> None:
    """Compare outputs, their cycles and the counts."""
    assert found.outputs.keys() == expected.outputs.keys()
    for name, bits in expected.outputs.items():
        assert np.array_equal(found.outputs[name], bits), name
    for name, cycles in expected.cycles.items():
        assert np.array_equal(found.cycles[name], cycles), name
    assert (found.cycle, found.counts) == (expected.cycle, expected.counts)
    assert np.array_equal(found.writes, expected.writes)


@pytest.mark.parametrize("seed", [0, 5])
def test_evictor_as_a_large_design_has_the_same_cycles(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, expected = run_evictor(seed)
    large(monkeypatch)
    shared, found = run_evictor(seed)
    assert shared != program
    equal(found, expected)


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 3])
def test_veda_as_a_large_design_has_the_same_cycles(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = entry_named("veda").parameters("tiny")
    work = mixed_layers(np.random.default_rng(4), p, 4)
    expected = run_veda(work, tmp_path, seed)
    large(monkeypatch, copies=3)
    equal(run_veda(work, tmp_path, seed), expected)
