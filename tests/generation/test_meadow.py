"""Text generation by a small random model in MEADOW's Verilog, and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import LanguageModel, open_language_model
from hdl.catalog import entry_named
from systola.generation.meadow import MeadowSystem
from systola.generation.run import Run
from systola.generation.system import Mismatch, Settings
from testbenches.meadow.host import Host
from tests.generation.random_models import (
    WordModel,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)

pytestmark = pytest.mark.depends("meadow")

SETTINGS = Settings(budget=128, reserved=32)
PROMPT = [3, 1, 4, 1, 5, 9, 2]
SHAPE = {"hidden_size": 16, "intermediate_size": 32, "context_length": 16}


def small_model(**changes: Any) -> WordModel:
    return WordModel(**vars(random_model(**SHAPE | changes)))


def prepared(
    folder: Path,
    tokens: int,
    prompt: list[int] = PROMPT,
    model: LanguageModel | None = None,
    preset: str = "tiny",
) -> Run:
    model = model or small_model()
    parameters = MeadowSystem.fitted(model, entry_named("meadow").parameters(preset))
    return running(MeadowSystem(model, parameters, SETTINGS, folder), prompt, tokens)


@pytest.mark.parametrize("preset", ["tiny", pytest.param("tiny_exponents", marks=pytest.mark.full)])
def test_tokens_equal_those_of_the_golden_model(tmp_path: Path, preset: str) -> None:
    """A prompt's block, then tokens up to the context; all is compared by the run itself."""
    run = prepared(tmp_path, 8, preset=preset)
    tokens = generated(run)
    assert len(tokens) == 8 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_unpacked"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("memory-*"))


def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(prepared(tmp_path, 6))
    folder = tmp_path / "interrupted"
    run = prepared(folder, 6)
    interrupted(run, monkeypatch, 3)
    again = prepared(folder, 6)
    assert generated(again) == whole
    assert again.resumed == len(PROMPT) + 2


def test_writes_a_corrupted_packed_model_again(tmp_path: Path) -> None:
    messages: list[str] = []
    system: Any = prepared(tmp_path, 1).system
    (file,) = tmp_path.glob("packed-*.memory")
    whole = file.read_bytes()
    system.prepare(messages.append)
    assert messages[-1].startswith("checking")
    file.write_bytes(whole[:-9] + b"?" + whole[-8:])
    system.prepare(messages.append)
    assert any("is corrupted, and is written again" in words for words in messages)
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("memory", "byte", "words"),
    [
        ("packets", 1, r"layer 0, keys, KV head \d, token \d, element \d: .* written in cycle \d+"),
        ("vectors", 4, r"(layer \d, (keys|values)|LM head, token and sum)"),
    ],
)
def test_reports_the_place_of_a_corrupted_byte(
    tmp_path: Path, memory: str, byte: int, words: str
) -> None:
    """Of the first layer's key matrix, or of the final norm's weights."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    places = {"packets": system.packed.layers[0].matrices["key"]["packet_address"][0]}
    places["vectors"] = system.packed.vocabulary.norm
    place = places[memory]
    system.packed.images[memory][place, byte] ^= 0x40
    with pytest.raises(Mismatch, match=words):
        generated(run)


def test_long_prompt_is_split_into_blocks(tmp_path: Path) -> None:
    """Of at most 14 tokens; only the last block predicts."""
    prompt = np.random.default_rng(1).integers(0, 45, 15).tolist()
    run = prepared(tmp_path, 1, prompt)
    generated(run)
    assert [figures["count"] for figures in run.progress.figures] == [14, 1]
    assert [figures["token"] is None for figures in run.progress.figures] == [True, False]


@pytest.mark.parametrize("seed", [1, 2])
def test_pauses_at_every_port_change_nothing(tmp_path: Path, seed: int) -> None:
    """Of requests and words alike, in half of all cycles."""
    system: Any = prepared(tmp_path, 1).system
    host = Host(system.p, system.packed, tmp_path, system.harness, seed)
    try:
        for tokens, predict in ((PROMPT, False), ([7, 7], True), ([40], True)):
            states = system.packed.integers.embedded(system.model.embedding[tokens])
            run = host.run(states, predict=predict)
            expected = system.golden.step(states)
            assert run.cycle > 1.2 * sum(host.traffic.ideal)
            if predict:
                wanted = expected.token, int(expected.sums[expected.token])
                assert host.prediction == wanted
            for layer, cache in enumerate(system.golden.caches):
                for name, own in zip(("keys", "values"), cache, strict=True):
                    assert np.array_equal(host.heads(layer, name), own)
            assert host.moved == host.traffic.moved
    finally:
        host.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 18}, "hidden_size must be a multiple of slices [*] head_size = 8, not 18"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
        ({"rope_base": 10_000.5}, "rope_base must be an integer, not 10000.5"),
    ],
)
def test_dimensions_that_meadow_has_not_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        MeadowSystem.fitted(small_model(**changes), entry_named("meadow").parameters("tiny"))


@pytest.mark.full
def test_smollm2_generates(tmp_path: Path) -> None:
    """Thirty-two tokens, by one lane of the twelve: each token is one lane's."""
    model = open_language_model()
    parameters = MeadowSystem.fitted(model, entry_named("meadow").parameters("smollm2"))
    assert parameters == entry_named("meadow").parameters("smollm2")
    settings = Settings(budget=128, reserved=32)
    system = MeadowSystem(model, replace(parameters, lanes=1), settings, tmp_path)
    run = running(system, model.tokens_of("The capital of France is"), 32)
    assert len(generated(run)) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")
