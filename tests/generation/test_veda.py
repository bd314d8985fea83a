"""Text generation by a small random model in VEDA's Verilog, and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import LanguageModel, open_language_model
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.veda.instructions import Space
from systola.generation.run import Run
from systola.generation.system import Mismatch, Settings
from systola.generation.veda import VedaSystem
from testbenches.veda.model_lines import address, bytes_of_line, fixed_space
from tests.generation.random_models import (
    PROMPT,
    SHAPE,
    RandomModel,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)

pytestmark = pytest.mark.depends("veda")

SETTINGS = Settings(budget=7, reserved=3)


def prepared(folder: Path, model: LanguageModel, tokens: int, prompt: list[int] = PROMPT) -> Run:
    parameters = VedaSystem.fitted(model, entry_named("veda").parameters("tiny"))
    return running(VedaSystem(model, parameters, SETTINGS, folder), prompt, tokens)


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """Layers, votes, victims and vocabulary are compared in every block, by the run itself."""
    run = prepared(tmp_path, random_model(), 8)
    # What a killed process left.
    (tmp_path / "cache-999999999.memory").touch()
    tokens = generated(run)
    assert len(tokens) == 8 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    # After the token that fills the budget, each layer evicts one slot per token.
    evicted = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evicted[-3:] == [SHAPE.layers] * 3 and evicted[0] == 0
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("cache-*"))


def test_long_prompt_is_trimmed_to_the_budget(tmp_path: Path) -> None:
    prompt = [int(token) for token in np.random.default_rng(1).integers(0, 45, 12)]
    run = prepared(tmp_path, random_model(), 3, prompt)
    generated(run)
    last = next(figures for figures in run.progress.figures if figures["token"] is not None)
    assert len(last["evictions"]) == (12 + 1 - SETTINGS.budget) * SHAPE.layers


@pytest.mark.parametrize(
    "blocks", [pytest.param(1, marks=pytest.mark.full), 3, pytest.param(6, marks=pytest.mark.full)]
)
def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    whole = generated(prepared(tmp_path / "whole", random_model(), 7))
    folder = tmp_path / "interrupted"
    run = prepared(folder, random_model(), 7)
    system: Any = run.system

    def written(block: Any, tokens: list[int], watch: Any) -> None:
        """In the middle of a block: the accelerator has written, and the host not yet taken."""
        system.host.run(block.plan, system.embedding[tokens])

    interrupted(run, monkeypatch, blocks, written)
    again = prepared(folder, random_model(), 7)
    assert generated(again) == whole
    assert again.resumed == run.progress.done > 0


def test_corrupted_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    run = prepared(tmp_path, random_model(), 2)
    run.checkpoint.file.write_bytes(b"0" * 100)
    generated(run)
    assert run.resumed == 0


def test_writes_corrupted_lines_again(tmp_path: Path) -> None:
    messages: list[str] = []
    system: Any = prepared(tmp_path, random_model(), 1).system
    lines = system.lines
    whole = lines.read_bytes()
    system.prepare(messages.append)
    assert "checking" in messages[-1]
    lines.write_bytes(whole[:-8] + bytes(8))
    system.prepare(messages.append)
    assert "is corrupted, and is written again" in messages[-1]
    assert lines.read_bytes() == whole


def test_reports_layer_and_cycle_of_a_corrupted_weight(tmp_path: Path) -> None:
    """One bit of the second layer's keys in memory."""
    run = prepared(tmp_path, random_model(), 1)
    system: Any = run.system
    p = system.p
    place = address(p, Space.WEIGHTS, layer=1) - fixed_space(p)
    with system.lines.open("r+b") as file:
        file.seek(place * bytes_of_line(p) + 1)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x40]))
    words = r"layer 1, keys, KV head 0, slot 0, element \d: .* written in cycle \d+"
    with pytest.raises(Mismatch, match=words):
        generated(run)


def larger(model: RandomModel, name: str, factor: float) -> RandomModel:
    """Return a model with a larger tensor."""
    own = model.tensor

    def tensor(layer: int | None, which: str) -> Any:
        return own(layer, which) * np.float32(factor if which == name else 1)

    return replace(model, tensor=tensor)


def test_rejects_hidden_states_beyond_fp16(tmp_path: Path) -> None:
    """All matrices fit FP16, and the second layer's output does not."""
    run = prepared(tmp_path, larger(larger(random_model(), "down", 1e4), "up", 100), 1)
    with pytest.raises(UserError, match="must fit FP16, up to 65504; those after layer"):
        generated(run)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("embedding", "the embedding does not"),
        ("projection", "the LM head does not"),
        ("gate", "gate does not"),
    ],
)
def test_rejects_matrices_beyond_fp16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr(VedaSystem, "compile", lambda self, report: None)
    with pytest.raises(UserError, match=f"the matrices of a model for VEDA must fit FP16; {words}"):
        prepared(tmp_path, larger(random_model(), name, 1e6), 1)


@pytest.mark.full
def test_smollm2_generates(tmp_path: Path) -> None:
    """Thirty-two tokens, of which the last ones each evict a token in every layer."""
    model = open_language_model()
    parameters = VedaSystem.fitted(model, entry_named("veda").parameters("smollm2"))
    assert parameters == entry_named("veda").parameters("smollm2_vocabulary")
    settings = Settings(budget=24, reserved=8)
    # What VEDA, with a small cache, makes of the other prompt ends after thirty tokens.
    system = VedaSystem(model, parameters, settings, tmp_path)
    run = running(system, model.tokens_of("Once upon a time, there was"), 32)
    assert len(generated(run)) == 32
    evictions = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evictions[-12:] == [model.shape.layers] * 12
