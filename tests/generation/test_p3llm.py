"""Text generation by a small random model in P3-LLM's Verilog, and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import open_language_model
from golden.p3llm.whole_model import WeightMethod
from hdl.catalog import entry_named
from systola.generation import p3llm
from systola.generation.p3llm import P3llmSystem
from systola.generation.run import Run
from systola.generation.system import Mismatch, Settings
from testbenches.p3llm.host import Host
from tests.generation.random_models import (
    WordModel,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)
from tests.p3llm.test_whole_model import SHAPE

pytestmark = [pytest.mark.depends("p3llm"), pytest.mark.usefixtures("compiled_once")]

SETTINGS = Settings(budget=128, reserved=32)
PROMPT = [3, 1, 4, 1, 5]


def small_model(**changes: Any) -> WordModel:
    return WordModel(**vars(random_model(**SHAPE | changes)))


def prepared(folder: Path, tokens: int, preset: str = "tiny") -> Run:
    model = small_model()
    parameters = P3llmSystem.fitted(model, entry_named("p3llm").parameters(preset))
    # One compilation serves the bench of the preset and all that is here.
    assert parameters == entry_named("p3llm").parameters(preset)
    return running(P3llmSystem(model, parameters, SETTINGS, folder), PROMPT, tokens)


def test_tokens_equal_those_of_the_golden_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, keys and values in every step, by the run itself; then the same, interrupted."""
    run = prepared(tmp_path, 6)
    tokens = generated(run)
    assert len(tokens) == 6 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    system: Any = run.system
    # A token's cycles are those of the columns that all units multiply, and what cannot hide.
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
    columns, units = system.host.counts["together"], system.p.units
    bounds = [figures["bound"] // 2 for figures in run.progress.figures]
    # All units also read columns of zero points and special values.
    assert sum(bounds) < columns // units < 1.3 * sum(bounds)
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens

    folder = tmp_path / "interrupted"
    run = prepared(folder, 6)
    interrupted(run, monkeypatch, 7)
    again = prepared(folder, 6)
    assert generated(again) == tokens
    assert again.resumed == 7


def test_key_of_the_quantised_model_has_each_ingredient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another text, method, clip grid or version of the file gives another key."""
    model = small_model()
    parameters = P3llmSystem.fitted(model, entry_named("p3llm").parameters("tiny"))
    system = P3llmSystem(model, parameters, SETTINGS, tmp_path)
    digests = [system.quantised_file(PROMPT).digest, system.quantised_file(PROMPT[:-1]).digest]
    for name, value in (
        ("METHOD", WeightMethod.PLAIN),
        ("CLIP_RATIOS", (1.0, 0.9)),
        ("VERSION", p3llm.VERSION + 1),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(p3llm, name, value)
            digests.append(system.quantised_file(PROMPT).digest)
    assert len(set(digests)) == len(digests)
    assert system.quantised_file(PROMPT).digest == digests[0]


@pytest.mark.full
@pytest.mark.parametrize("preset", ["tiny_pre_rope", "tiny_vocabulary_bits"])
def test_tokens_of_an_option_equal_those_of_the_golden_model(tmp_path: Path, preset: str) -> None:
    """From the first token on, which attends to itself alone; compared in every step."""
    assert len(generated(prepared(tmp_path, 6, preset))) == 6


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda p: p.matrices["qkv"].base + 20, r"layer 0, output state, element \d+: .* cycle"),
        (lambda p: 2 * p.layer_positions + 200, r"LM head, token and sum"),
    ],
)
def test_reports_layer_and_cycle_of_a_corrupted_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, words: str
) -> None:
    """Columns of the first layer's first matrix, and of the vocabulary."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    begin = system.begin

    def corrupted(state: Any) -> None:
        begin(state)
        first = place(system.p)
        system.host._image[first : first + 40] ^= 0x44

    monkeypatch.setattr(system, "begin", corrupted)
    with pytest.raises(Mismatch, match=words):
        generated(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 60}, "hidden_size must be a multiple of 8, not 60"),
        ({"head_size": 20}, "head_size must be a multiple of 8, not 20"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
        ({"rope_base": 10_000.5}, "rope_base must be an integer, not 10000.5"),
    ],
)
def test_dimensions_that_p3llm_has_not_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        P3llmSystem.fitted(small_model(**changes), entry_named("p3llm").parameters("tiny"))


def test_rejects_a_batch() -> None:
    with pytest.raises(ValueError, match="batch must be 1 for text generation, not 3"):
        P3llmSystem.fitted(small_model(), entry_named("p3llm").parameters("tiny_batch"))


def test_rejects_several_pseudo_channels() -> None:
    with pytest.raises(ValueError, match="pseudo_channels must be 1 for text generation"):
        P3llmSystem.fitted(small_model(), entry_named("p3llm").parameters("tiny_channels"))


def test_pauses_at_every_port_change_nothing(tmp_path: Path) -> None:
    """In half of all cycles, with the vocabulary in between."""
    system: Any = prepared(tmp_path, 1).system
    host = Host(system.p, system.quantised, tmp_path, system.harness, 1)
    try:
        for position in range(6):
            state = system.model.embedding[position]
            predict = position % 3 != 0
            expected = system.golden.step(state[np.newaxis], predict=predict)
            host.run(position, state, predict=predict)
            found = np.stack([layer.state for layer in host.layers])
            assert np.array_equal(found, expected.states[:, 0]), position
            if predict:
                assert host.prediction is not None
                assert host.prediction[0] == expected.token
    finally:
        host.close()


@pytest.mark.full
def test_smollm2_generates(tmp_path: Path) -> None:
    """Thirty-two tokens from 4-bit weights, keys and values in the banks."""
    model = open_language_model()
    parameters = P3llmSystem.fitted(model, entry_named("p3llm").parameters("smollm2"))
    preset = entry_named("p3llm").parameters("smollm2")
    assert replace(parameters, layers=2, vocabulary_size=0) == preset
    settings = Settings(budget=128, reserved=32)
    system = P3llmSystem(model, parameters, settings, tmp_path)
    run = running(system, model.tokens_of("The capital of France is"), 32)
    assert len(generated(run)) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")
