"""Text generation by a small random model in P3-LLM with the AXI shell, by the host library."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import open_language_model
from golden.p3llm.dram_image import cache_image
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.generation.p3llm_axi import P3llmAxiSystem
from systola.generation.run import Run
from systola.generation.shell import MEMORY
from systola.generation.system import Mismatch
from systola.host.p3llm import P3llmHost
from systola.host.verilated import Verilated
from testbenches.external_memory import memory_of
from tests.generation.boards import failing, require_large_memory, require_same_digest
from tests.generation.random_models import generated, interrupted, predicted, running
from tests.generation.test_p3llm import PROMPT, SETTINGS, small_model

pytestmark = pytest.mark.depends("p3llm", "p3llm_axi")

PRESET = entry_named("p3llm_axi").parameters("tiny")


def system_of(folder: Path, settings: Any = SETTINGS) -> P3llmAxiSystem:
    model = small_model()
    parameters = P3llmAxiSystem.fitted(model, PRESET)
    # One compilation serves the bench of the preset and all that is here.
    assert parameters == PRESET
    return P3llmAxiSystem(model, parameters, settings, folder)


def prepared(folder: Path, tokens: int) -> Run:
    return running(system_of(folder), PROMPT, tokens)


def test_tokens_equal_those_of_the_golden_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run compares states, keys, values and predictions; then the same, interrupted."""
    run = prepared(tmp_path, 6)
    tokens = generated(run)
    assert len(tokens) == 6 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_read"] > figures["bytes_written"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("memory-*"))

    folder = tmp_path / "interrupted"
    interrupted(prepared(folder, 6), monkeypatch, 7)
    again = prepared(folder, 6)
    assert generated(again) == tokens
    assert again.resumed == 7


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared system, whose transports the tests open."""
    return prepared(tmp_path_factory.mktemp("system"), 1).system


def host_of(system: Any, transport: Verilated, parameters: Any = None) -> P3llmHost:
    return P3llmHost(transport, parameters or system.p, system.quantised, timeout=600)


def decode(system: Any, host: P3llmHost, *, predict: bool) -> None:
    """Decode the next token in the golden model and in the host, and compare all results."""
    state = system.model.embedding[host.length]
    wanted = system.golden.step(state[np.newaxis], predict=predict)
    host.run(state, predict=predict)
    found = np.stack([layer.state for layer in host.layers])
    assert np.array_equal(found.view(np.uint32), wanted.states[:, 0].view(np.uint32))
    caches = [cache_image(system.p3llm, own) for own in system.golden.caches]
    assert np.array_equal(np.stack(host.cached), np.stack(caches))
    if predict:
        assert host.prediction is not None and host.prediction[0] == wanted.token


def test_pauses_at_every_channel_change_nothing(system: Any, tmp_path: Path) -> None:
    """Two texts: the second one begins with empty caches, which the host has written."""
    with Verilated(system.harness, system.p, MEMORY, tmp_path, seed=1) as transport:
        host = host_of(system, transport)
        for tokens in (6, 3):
            system.golden.begin()
            host.begin()
            for position in range(tokens):
                decode(system, host, predict=position % 3 != 0)
            assert host.length == tokens


@pytest.mark.parametrize(
    ("port", "number", "response"),
    [
        ("bank_reads", 100, Response.SLVERR),
        ("bank_writes", 50, Response.DECERR),
        ("output_writes", 3, Response.SLVERR),
    ],
)
def test_token_is_repeated_after_an_error_response(
    system: Any, board: Verilated, port: str, number: int, response: Response
) -> None:
    host = host_of(system, board)
    system.golden.begin()
    for _position in range(3):
        decode(system, host, predict=False)
    with failing(board, port, number, response):
        host.run(system.model.embedding[host.length], predict=True)
    assert host.length == 3
    for _position in range(2):
        decode(system, host, predict=True)


def test_several_requests_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, p3llm=replace(system.p.p3llm, batch=2))
    with pytest.raises(UserError, match="batch must be 1 for the host library, not 2"):
        host_of(system, board, other)
    assert board.read_memory(MEMORY.first, 1 << 16) == bytes(1 << 16)


def test_other_parameters_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, windows=2)
    require_same_digest(host_of, system, board, other)


def test_small_memory_is_refused(system: Any, tmp_path: Path) -> None:
    require_large_memory(host_of, system, tmp_path)


def test_reports_the_layer_of_a_corrupted_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path, 1)
    system: Any = run.system
    begin = system.begin

    def corrupted(state: Any) -> None:
        begin(state)
        first = system.p3llm.matrices["qkv"].base + 20
        words = system.host.read_words("banks", first, 40)
        system.host.write_words("banks", first, words ^ 0x44)

    monkeypatch.setattr(system, "begin", corrupted)
    with pytest.raises(Mismatch, match=r"layer 0, output state, element \d+: .* differ\)$"):
        generated(run)


def test_memory_of_the_bare_accelerator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="MEMORY is not for p3llm_axi; use TOP=p3llm"):
        system_of(tmp_path, replace(SETTINGS, memory=memory_of("hbm2")))


@pytest.mark.full
def test_smollm2_is_fitted() -> None:
    """The dimensions of SmolLM2; its text is too long for a test."""
    preset = entry_named("p3llm_axi").parameters("smollm2")
    p = P3llmAxiSystem.fitted(open_language_model(), preset)
    assert p.p3llm.layers == 30 and p.p3llm.vocabulary_size == 49152
    assert p.positions * p.regions["banks"] < MEMORY.end - MEMORY.first
