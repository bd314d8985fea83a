"""Text generation by a small random model in LAD's Verilog, and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.lad.linear.half_matrix import HalfMatrix
from golden.lad.linear.linear_module import linear
from golden.lad.whole_model import HalfModel, WholeModel
from golden.llm.language_model import open_language_model
from hdl.catalog import entry_named
from hdl.errors import UserError
from systola.generation.lad import LadSystem
from systola.generation.run import Run
from systola.generation.system import Mismatch, Settings
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.host import Host
from testbenches.lad.vectors import random_codes
from testbenches.lad.weight_bytes import file_items
from tests.generation.random_models import (
    PROMPT,
    RandomModel,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)

SETTINGS = Settings(budget=128, reserved=32)
SHAPE = {"hidden_size": 8, "heads": 2, "kv_heads": 1, "context_length": 40}
TINY = entry_named("lad").parameters("tiny")

pytestmark = [pytest.mark.depends("lad"), pytest.mark.usefixtures("compiled_once")]


def small_model(**changes: Any) -> RandomModel:
    return random_model(3, **SHAPE | changes)


def prepared(folder: Path, tokens: int) -> Run:
    model = small_model()
    return running(
        LadSystem(model, LadSystem.fitted(model, TINY), SETTINGS, folder), PROMPT, tokens
    )


def test_parameters_are_those_of_the_unit_test() -> None:
    assert LadSystem.fitted(small_model(), TINY) == TINY


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """States after each layer, rows of all heads, payloads, predictions, by the run itself."""
    run = prepared(tmp_path, 14)
    tokens = generated(run)
    assert len(tokens) == 14 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    last = run.progress.figures[-1]["decided"]
    # Positions have left the latest ones: they are in the caches, and not all are corrected.
    assert last["updated modes"] and last["active positions"] < last["positions"]
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("rows-*"))


def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(prepared(tmp_path, 8))
    folder = tmp_path / "interrupted"
    run = prepared(folder, 8)
    interrupted(run, monkeypatch, 9)
    again = prepared(folder, 8)
    assert generated(again) == whole
    assert again.resumed == 9


def flip(run: Run, place: int) -> None:
    """Change a bit of a weight in the file that the accelerator fetches from."""
    system: Any = run.system
    with system.weights.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x40]))


def test_reports_layer_and_cycle_of_a_corrupted_weight(tmp_path: Path) -> None:
    """The check detects it in the second layer, and in the LM head by the sum."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    layer = file_items(system.weights, system.p)[1]
    flip(run, layer.first + 1)
    words = r"state after layer 1, sample 0, element \d: .* in cycle \d+"
    with pytest.raises(Mismatch, match=words):
        generated(run)


def test_wrong_rows_of_a_head_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode that no step selected is detected."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    own = system._compare

    def corrupted(decoded: Any, expected: Any) -> None:
        system.rows.plane_bytes("modes", "r+")[5, 0] ^= 1
        own(decoded, expected)

    monkeypatch.setattr(system, "_compare", corrupted)
    with pytest.raises(Mismatch, match=r"layer 1, \(batch, head\) pair 5, modes at \(0,\)"):
        generated(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 10}, "hidden_size must be a multiple of head_size, not 10"),
        ({"head_size": 5, "hidden_size": 10}, "head_size must be even, not 5"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
        ({"layers": 200}, "layers must be an integer from 1 to 128, not 200"),
    ],
)
def test_dimensions_that_lad_has_not_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        LadSystem.fitted(small_model(**changes), TINY)


def test_weights_beyond_fp16_are_refused() -> None:
    model = small_model()
    large = replace(model, tensor=lambda layer, name: model.tensor(layer, name) * 1e5)
    with pytest.raises(UserError, match="the weights of input_norm in layer 0 must fit FP16"):
        HalfModel.of(large, TINY)


def test_pauses_at_every_port_change_nothing(tmp_path: Path) -> None:
    """In half of all cycles, with the vocabulary in between."""
    system: Any = prepared(tmp_path, 1).system
    p = system.p
    rows = HeadRows(p, tmp_path / "rows.memory")
    rows.create()
    golden = WholeModel(p, system.half)
    host = Host(p, system.half, system.harness, rows, file_items(system.weights, p), 1)
    try:
        for position in range(8):
            # Other samples have other tokens here.
            states = system.embedding[[position, 3 * position + 1]]
            predict = position % 3 != 0
            expected = golden.step(position, states, predict=predict)
            host.run(position, states, predict=predict)
            assert np.array_equal(host.states, expected.states), position
            assert host.predictions == expected.predictions
            assert rows.difference(golden.lad.tiles.heads, position + 1) is None
    finally:
        host.close()


@pytest.mark.parametrize("head_size", [4, 6, 5])
def test_fast_sums_are_the_linear_module_s(head_size: int) -> None:
    """Any codes: infinities, NaNs, subnormal numbers, rows for more than one part."""
    rng = np.random.default_rng(head_size)
    for rows, columns in ((5000, head_size), (50, 5 * head_size - 1)):
        matrix, inputs = random_codes(rng, (rows, columns)), random_codes(rng, (columns,))
        expected = linear(matrix, inputs[np.newaxis], head_size=head_size)[0]
        assert np.array_equal(HalfMatrix(matrix, head_size)(inputs), expected)


@pytest.mark.full
def test_smollm2_generates(tmp_path: Path) -> None:
    """Thirty-two tokens, of which the last ones leave positions to the intermediate caches."""
    model = open_language_model()
    parameters = LadSystem.fitted(model, entry_named("lad").parameters("smollm2"))
    settings = Settings(budget=128, reserved=32)
    # What LAD makes of the other prompt ends after thirty tokens.
    system = LadSystem(model, parameters, settings, tmp_path)
    run = running(system, model.tokens_of("Once upon a time, there was"), 32)
    assert len(generated(run)) == 32
    assert run.continuation(run.progress.tokens).startswith(" a small town")
    last = run.progress.figures[-1]["decided"]
    assert last["updated modes"] and last["active positions"] < last["positions"]
