"""Results of simulations of VEDA's RTL are compared with the model; missing ones are skipped."""

import json
from pathlib import Path

import pytest

from golden.study.veda import _simulated
from golden.study.veda_cycles import AttentionCycles
from golden.study.veda_measured import COMMANDS, measured_heads


def leave(build: Path, top: str, preset: str, *, passed: bool = True, **facts: float) -> None:
    folder = build / top / preset
    folder.mkdir(parents=True)
    (folder / "sim.json").write_text(json.dumps({"passed": passed, "facts": facts}))


def test_an_array_and_an_accelerator_give_heads(tmp_path: Path) -> None:
    leave(tmp_path, "flexible_pe_array", "paper", utilisation_512=0.8, utilisation_64_split=0.5)
    # Nine heads of SmolLM2 on two planes: five rounds.
    leave(tmp_path, "veda", "smollm2", cycles_128=1500, beats_128=1280, cycles_with_votes=9)
    first, second, third = measured_heads(tmp_path)
    assert (first.length, first.width, first.cycles) == (64, 64, 256.0)
    assert (second.length, second.width, second.cycles) == (512, 128, 1280.0)
    assert (third.top, third.length, third.width, third.cycles) == ("veda", 128, 64, 300.0)
    assert (third.products, third.overhead) == (256, 44.0)
    assert third.model.element_serial(128) - third.products == AttentionCycles.overhead


@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_a_failed_or_a_tiny_simulation_gives_nothing(tmp_path: Path, preset: str) -> None:
    leave(tmp_path, "flexible_pe_array", preset, passed=preset == "tiny", utilisation_64=0.5)
    assert measured_heads(tmp_path) == []


def test_the_table_names_the_commands_that_are_missing(tmp_path: Path) -> None:
    table, plot = _simulated(measured_heads(tmp_path))
    assert table.rows == [] and plot.points == {}
    assert all(command in table.note for command in COMMANDS)


def test_a_simulation_is_a_row_and_a_point(tmp_path: Path) -> None:
    leave(tmp_path, "veda", "smollm2", cycles_128=1500)
    table, plot = _simulated(measured_heads(tmp_path))
    # An adder tree: 128 scores, 64 sums of two passes each, 64 cycles of softmax.
    assert table.rows == [
        ("veda smollm2", "128", "64", "256", "300.0", "85.3%", "391", "320", "0.938")
    ]
    assert plot.points == {"RTL: veda smollm2": ([128], [300.0])}
