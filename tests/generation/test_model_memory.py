"""Files that are computed from a model follow every change of what decides them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import open_language_model
from hdl.catalog import entry_named
from systola.generation.kelle import KelleSystem
from systola.generation.lad import LadSystem
from systola.generation.meadow import MeadowSystem
from systola.generation.model_memory import ModelFile, model_arrays
from systola.generation.p3llm import P3llmSystem
from systola.generation.system import Settings, System
from systola.generation.veda import VedaSystem
from tests.generation.random_models import generated, running
from tests.generation.small_model import VOCABULARY, write_small_model

SETTINGS = Settings(budget=7, reserved=3)
SYSTEMS: dict[type[System], dict[str, Any]] = {
    VedaSystem: {},
    KelleSystem: {"hidden_size": 32, "head_dim": 8},
    LadSystem: {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1},
    MeadowSystem: {"hidden_size": 16, "intermediate_size": 32},
    P3llmSystem: {
        "hidden_size": 64,
        "head_dim": 16,
        "intermediate_size": 64,
    },
}
"""The systems, and dimensions of a model that the preset `tiny` fits."""


def edit(folder: Path, **changes: Any) -> None:
    """Change a model's configuration next to the same weights."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    if theta := changes.pop("rope_theta", None):
        config["rope_parameters"]["rope_theta"] = theta
    file.write_text(json.dumps(config | changes))


@pytest.fixture
def uncompiled() -> Iterator[None]:
    """Prepare systems without Verilog: the program's name is a constant."""
    with pytest.MonkeyPatch.context() as patch:
        harness = SimpleNamespace(name="program")
        patch.setattr(System, "compile", lambda self, report: setattr(self, "harness", harness))
        yield


def prepared(kind: type[System], model: Path, folder: Path) -> System:
    opened = open_language_model(model)
    folder.mkdir(exist_ok=True)
    fitted = kind.fitted(opened, entry_named(kind.top).parameters("tiny"))
    system = kind(opened, fitted, SETTINGS, folder)
    system.prepare(lambda words: None)
    return system


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("kind", SYSTEMS, ids=lambda kind: kind.top)
def test_image_and_run_follow_the_configuration(kind: type[System], tmp_path: Path) -> None:
    """Of one weights file: the rotary base, the context, the end token, the tokenizer."""
    model = write_small_model(tmp_path / "model", **SYSTEMS[kind], num_hidden_layers=1)
    seen: list[Any] = []
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"num_hidden_layers": 2},
        {"rope_theta": 500_000.0},
        {"max_position_embeddings": 32},
        {"eos_token_id": 7},
    )
    for number, change in enumerate(changes):
        if "num_hidden_layers" in change:
            # The reader refuses a number of layers that the weights do not have.
            write_small_model(model, **SYSTEMS[kind], **change)
        else:
            edit(model, **change)
        system = prepared(kind, model, tmp_path / "kept")
        if number in (1, 2):
            fresh = prepared(kind, model, tmp_path / f"fresh {number}")
            assert system.kept.file.read_bytes() == fresh.kept.file.read_bytes()
            assert system.identity == fresh.identity
        assert system.identity not in seen, change
        seen.append(system.identity)
    tokenizer = model / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    words = content["model"]["vocab"]
    words["0"], words["1"] = words["1"], words["0"]
    tokenizer.write_text(json.dumps(content))
    assert prepared(kind, model, tmp_path / "kept").identity not in seen


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("kind", SYSTEMS, ids=lambda kind: kind.top)
def test_image_follows_the_code_that_writes_it(
    kind: type[System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_small_model(tmp_path / "model", **SYSTEMS[kind])
    system = prepared(kind, model, tmp_path / "kept")
    identity = system.identity
    messages: list[str] = []
    system.prepare(messages.append)
    assert messages[-1].startswith("checking")
    monkeypatch.setattr("systola.generation.system.code_digest", lambda *names, without: "new")
    system.prepare(messages.append)
    assert any("has another code, and is written again" in words for words in messages)
    assert system.identity != identity


def test_tokens_follow_the_configuration(tmp_path: Path) -> None:
    """Three runs of VEDA: before and after a change in one folder, and after it in a new one."""
    model = write_small_model(tmp_path / "model")
    prompt = np.random.default_rng(5).integers(0, VOCABULARY, 9).tolist()
    texts = []
    for theta, folder in ((1e4, "kept"), (2.0, "kept"), (2.0, "new")):
        edit(model, rope_theta=theta)
        opened = open_language_model(model)
        fitted = VedaSystem.fitted(opened, entry_named("veda").parameters("tiny"))
        system = VedaSystem(opened, fitted, Settings(budget=16, reserved=3), tmp_path / folder)
        texts.append(generated(running(system, prompt, 3)))
    assert texts[0] != texts[1] == texts[2]


def test_key_with_a_tuple_is_found_again(tmp_path: Path) -> None:
    kept = ModelFile(tmp_path / "file.memory", {"tokens": (1, 2), "shape": {"base": 1e4}})
    computed: list[int] = []

    def arrays() -> dict[str, Any]:
        computed.append(1)
        return {"a": np.arange(3)}

    for _time in range(2):
        assert model_arrays(kept, arrays, lambda words: None)["a"].tolist() == [0, 1, 2]
    assert computed == [1]


@pytest.mark.parametrize("manifest", ["[]", "{", '{"of": null}', '{"of": {"a": 1}, "pieces": 3}'])
def test_writes_a_file_with_a_corrupted_manifest_again(tmp_path: Path, manifest: str) -> None:
    kept = ModelFile(tmp_path / "file.memory", {"a": 1})
    model_arrays(kept, lambda: {"a": np.zeros(2)}, lambda words: None)
    kept.file.with_suffix(".json").write_text(manifest)
    found = model_arrays(kept, lambda: {"a": np.ones(2)}, lambda words: None)
    assert found["a"].tolist() == [1, 1]
