"""Text generation by a small random model in Kelle with the AXI shell, by the host library."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.kelle.whole_model import first_states
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.generation.kelle_axi import KelleAxiSystem
from systola.generation.run import Run
from systola.generation.shell import MEMORY
from systola.generation.system import Mismatch
from systola.host.kelle import KelleHost
from systola.host.verilated import Verilated
from testbenches.external_memory import memory_of
from tests.generation.boards import failing, require_large_memory, require_same_digest
from tests.generation.random_models import generated, interrupted, predicted, running
from tests.generation.test_kelle import PROMPT, SETTINGS, TINY, small_model

pytestmark = pytest.mark.depends("kelle", "kelle_axi")

PRESET = replace(entry_named("kelle_axi").parameters("tiny"), kelle=TINY)


def system_of(folder: Path, settings: Any = SETTINGS) -> KelleAxiSystem:
    model = small_model()
    return KelleAxiSystem(model, KelleAxiSystem.fitted(model, PRESET), settings, folder)


def prepared(folder: Path, tokens: int) -> Run:
    return running(system_of(folder), PROMPT, tokens)


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """The run compares states after each layer, slots, victims and predictions."""
    run = prepared(tmp_path, 12)
    tokens = generated(run)
    assert len(tokens) == 12 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    evicted = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evicted[7] == 0 and evicted[8:] == [4] * (len(evicted) - 8)
    system: Any = run.system
    assert any(own.inputs for own in system.golden.layers)
    for figures in run.progress.figures[1:]:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_read"] > figures["bytes_written"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("memory-*"))


def test_interrupted_run_takes_its_text_through_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(prepared(tmp_path / "whole", 8))
    folder = tmp_path / "interrupted"
    interrupted(prepared(folder, 8), monkeypatch, 10)
    again = prepared(folder, 8)
    assert generated(again) == whole
    assert again.resumed == 10


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared system, whose transports the tests open."""
    return prepared(tmp_path_factory.mktemp("system"), 1).system


def host_of(system: Any, transport: Verilated, parameters: Any = None) -> KelleHost:
    return KelleHost(transport, parameters or system.p, system.integers, timeout=600)


def begin(system: Any, host: KelleHost) -> None:
    """Begin a text in the golden model and in the host."""
    host.begin(system.golden.begin(first_states(system.model, PROMPT[0])), system.golden.layers)


def decode(system: Any, host: KelleHost, *, predict: bool) -> None:
    """Decode the next token in both, and compare."""
    position = host.length
    state = system.integers.embedded(system.model.embedding[position], system.kelle)
    wanted = system.golden.step(position, state, predict=predict)
    host.run(state, predict=predict)
    assert host.length == position + 1
    found = np.stack([layer.output for layer in host.layers])
    assert np.array_equal(found, wanted.states), position
    if predict:
        assert host.prediction == (wanted.token, system.sum_of(int(wanted.sums.max())))
    placements = [layer.placements for layer in host.layers]
    assert placements == [step.placements for step in wanted.steps]


def test_pauses_at_every_channel_change_nothing(system: Any, tmp_path: Path) -> None:
    """Two texts: the second one begins with empty caches."""
    with Verilated(system.harness, system.p, MEMORY, tmp_path, seed=1) as transport:
        host = host_of(system, transport)
        for tokens in (13, 4):
            begin(system, host)
            for position in range(tokens):
                decode(system, host, predict=position % 3 != 0)


@pytest.mark.parametrize(
    ("port", "number", "response"),
    [
        ("weight_reads", 5, Response.SLVERR),
        ("input_writes", 2, Response.DECERR),
        ("placement_writes", 1, Response.SLVERR),
    ],
)
def test_token_is_repeated_after_an_error_response(
    system: Any, board: Verilated, port: str, number: int, response: Response
) -> None:
    """The caches are lost: the host decodes the text again, which has evicted and recomputed."""
    host = host_of(system, board)
    begin(system, host)
    for _position in range(12):
        decode(system, host, predict=False)
    state = system.integers.embedded(system.model.embedding[host.length], system.kelle)
    with failing(board, port, number, response):
        host.run(state, predict=True)
    assert host.length == 13
    for _position in range(2):
        decode(system, host, predict=True)


def test_text_without_a_prefill_is_refused(system: Any, board: Verilated) -> None:
    host = host_of(system, board)
    with pytest.raises(UserError, match="a text must begin with a prefill, not with a token"):
        host.run(np.zeros(system.kelle.hidden_size, np.int64), predict=False)


def test_other_parameters_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, clock_mhz=system.p.clock_mhz + 1)
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
        words = system.board.read_words("weights", 0, system.p.layer_words)
        system.board.write_words("weights", 0, words ^ 0x40)

    monkeypatch.setattr(system, "begin", corrupted)
    with pytest.raises(Mismatch, match=r"layer 0, output state, element \d+: .* differ\)$"):
        generated(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": memory_of("hbm2")}, "MEMORY is not for kelle_axi; use TOP=kelle"),
        ({"clock": 99}, "CLOCK must be clock_mhz = 100 of kelle_axi, not 99"),
    ],
)
def test_options_of_the_bare_accelerator_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        system_of(tmp_path, replace(SETTINGS, **changes))
