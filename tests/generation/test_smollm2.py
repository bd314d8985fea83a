"""SmolLM2 through the systems' Verilog: every block equal to the golden model."""

from dataclasses import replace
from pathlib import Path

import pytest

from golden.llm.language_model import open_language_model
from hdl.catalog import entry_named
from systola.generation.kelle import KelleSystem
from systola.generation.lad import LadSystem
from systola.generation.meadow import MeadowSystem
from systola.generation.p3llm import P3llmSystem
from systola.generation.system import Settings
from systola.generation.veda import VedaSystem
from tests.generation.test_generate import running

PROMPT = "The capital of France is"
STORY = "Once upon a time, there was"
"""What VEDA, with a small cache, and LAD make of the other one ends after thirty tokens."""


@pytest.mark.full
def test_smollm2_generates_on_veda(tmp_path: Path) -> None:
    """Thirty-two tokens, of which the last ones each evict a token in every layer."""
    model = open_language_model()
    parameters = VedaSystem.fitted(model, entry_named("veda").parameters("smollm2"))
    assert parameters == entry_named("veda").parameters("smollm2_vocabulary")
    settings = Settings(budget=24, reserved=8)
    system = VedaSystem(model, parameters, settings, tmp_path)
    run = running(system, model.tokens_of(STORY), 32)
    run.go(lambda token: None, lambda block, moving: None)
    assert len(run.progress.tokens) == 32
    evictions = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evictions[-12:] == [model.shape.layers] * 12


@pytest.mark.full
def test_smollm2_generates_on_meadow(tmp_path: Path) -> None:
    """Thirty-two tokens, by one lane of the twelve: each token is one lane's."""
    model = open_language_model()
    parameters = MeadowSystem.fitted(model, entry_named("meadow").parameters("smollm2"))
    assert parameters == entry_named("meadow").parameters("smollm2")
    settings = Settings(budget=128, reserved=32)
    system = MeadowSystem(model, replace(parameters, lanes=1), settings, tmp_path)
    run = running(system, model.tokens_of(PROMPT), 32)
    run.go(lambda token: None, lambda block, moving: None)
    assert len(run.progress.tokens) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")


@pytest.mark.full
def test_smollm2_generates_on_kelle(tmp_path: Path) -> None:
    """Thirty-two tokens on a quarter of the array, of which the last ones evict in every head."""
    model = open_language_model()
    preset = replace(entry_named("kelle").parameters("smollm2"), rows=16, bands=8)
    parameters = KelleSystem.fitted(model, replace(preset, slots=32, window=16))
    settings = Settings(budget=128, reserved=32)
    run = running(KelleSystem(model, parameters, settings, tmp_path), model.tokens_of(PROMPT), 32)
    run.go(lambda token: None, lambda block, moving: None)
    assert len(run.progress.tokens) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")
    evictions = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evictions[-4:] == [model.shape.layers * parameters.kv_heads] * 4


@pytest.mark.full
def test_smollm2_generates_on_lad(tmp_path: Path) -> None:
    """Thirty-two tokens, of which the last ones leave positions to the intermediate caches."""
    model = open_language_model()
    parameters = LadSystem.fitted(model, entry_named("lad").parameters("smollm2"))
    settings = Settings(budget=128, reserved=32)
    run = running(LadSystem(model, parameters, settings, tmp_path), model.tokens_of(STORY), 32)
    run.go(lambda token: None, lambda block, moving: None)
    assert len(run.progress.tokens) == 32
    assert run.continuation(run.progress.tokens).startswith(" a small town")
    last = run.progress.figures[-1]["decided"]
    assert last["updated modes"] and last["active positions"] < last["positions"]


@pytest.mark.full
def test_smollm2_generates_on_p3llm(tmp_path: Path) -> None:
    """Thirty-two tokens from 4-bit weights, keys and values in the banks."""
    model = open_language_model()
    parameters = P3llmSystem.fitted(model, entry_named("p3llm").parameters("smollm2"))
    preset = entry_named("p3llm").parameters("smollm2")
    assert replace(parameters, layers=2, vocabulary_size=0) == preset
    settings = Settings(budget=128, reserved=32)
    run = running(P3llmSystem(model, parameters, settings, tmp_path), model.tokens_of(PROMPT), 32)
    run.go(lambda token: None, lambda block, moving: None)
    assert len(run.progress.tokens) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")
