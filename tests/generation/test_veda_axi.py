"""Text generation by a small random model in VEDA with the AXI shell, by the host library."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.veda.whole_model import Block, WholeModel
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.generation.run import Run
from systola.generation.shell import MEMORY
from systola.generation.system import Mismatch
from systola.generation.veda_axi import VedaAxiSystem
from systola.host.veda import VedaHost
from systola.host.verilated import Verilated
from testbenches.external_memory import memory_of
from testbenches.veda.model_lines import bytes_of_line
from tests.generation.boards import failing, require_large_memory, require_same_digest
from tests.generation.random_models import (
    PROMPT,
    SHAPE,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)
from tests.generation.test_veda import SETTINGS

pytestmark = pytest.mark.depends("veda", "veda_axi")

PRESET = entry_named("veda_axi").parameters("tiny")


def prepared(folder: Path, tokens: int, prompt: list[int] = PROMPT) -> Run:
    model = random_model()
    parameters = VedaAxiSystem.fitted(model, PRESET)
    return running(VedaAxiSystem(model, parameters, SETTINGS, folder), prompt, tokens)


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """The run compares caches, votes and victims in every block."""
    run = prepared(tmp_path, 8)
    tokens = generated(run)
    assert len(tokens) == 8 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    evicted = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evicted[-3:] == [SHAPE.layers] * 3 and evicted[0] == 0
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_read"] > figures["bytes_written"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(tmp_path.glob("memory-*"))


def test_long_prompt_is_trimmed_to_the_budget(tmp_path: Path) -> None:
    prompt = [int(token) for token in np.random.default_rng(1).integers(0, 45, 12)]
    run = prepared(tmp_path, 3, prompt)
    generated(run)
    last = next(figures for figures in run.progress.figures if figures["token"] is not None)
    assert len(last["evictions"]) == (12 + 1 - SETTINGS.budget) * SHAPE.layers


def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted run has evicted tokens, whose slots the accelerator must find again."""
    whole = generated(prepared(tmp_path / "whole", 7))
    folder = tmp_path / "interrupted"
    run = prepared(folder, 7)
    interrupted(run, monkeypatch, 6)
    again = prepared(folder, 7)
    assert generated(again) == whole
    assert again.resumed == run.progress.done > 0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared system, whose transports the tests open."""
    return prepared(tmp_path_factory.mktemp("system"), 1).system


def host_of(system: Any, transport: Verilated, parameters: Any = None) -> VedaHost:
    lines = np.fromfile(system.lines, np.uint8).reshape(-1, bytes_of_line(system.veda))
    return VedaHost(transport, parameters or system.p, SHAPE.layers, lines, timeout=600)


BLOCKS = [
    Block(first=0, count=3, vote=True, evictions=0, predict=False),
    *(Block(first=3 + n, count=1, vote=True, evictions=1, predict=True) for n in range(3)),
]
"""Three tokens, then one at a time, each of which takes the slot of a victim."""


def test_pauses_at_every_channel_change_nothing(system: Any, tmp_path: Path) -> None:
    golden = WholeModel(system.veda, system.weights, system.vocabulary, SHAPE.rope_base)
    with Verilated(system.harness, system.p, MEMORY, tmp_path, seed=1) as transport:
        host = host_of(system, transport)
        for block in BLOCKS:
            states = system.embedding[PROMPT[: block.count]]
            host.run(block, states)
            wanted = golden.step(block, states)
            if wanted.token is None:
                assert np.array_equal(host.states_left, wanted.states[-1])
            else:
                assert host.prediction is not None and host.prediction[0] == wanted.token


@pytest.mark.parametrize(
    ("port", "number", "response"),
    [
        ("line_reads_1", 5, Response.SLVERR),
        ("cache_writes", 2, Response.DECERR),
        ("count_writes", 1, Response.SLVERR),
    ],
)
def test_block_is_repeated_after_an_error_response(
    system: Any, board: Verilated, port: str, number: int, response: Response
) -> None:
    """The block follows evictions: the reset has lost the victims' slots, and votes are written."""
    host = host_of(system, board)
    golden = WholeModel(system.veda, system.weights, system.vocabulary, SHAPE.rope_base)
    states = system.embedding[PROMPT]
    for block in BLOCKS[:-1]:
        host.run(block, states[: block.count])
        golden.step(block, states[: block.count])
    length = host.length
    with failing(board, port, number, response):
        host.run(BLOCKS[-1], states[:1])
    assert host.length == length
    host.run(BLOCKS[-1], states[:1])
    wanted = golden.step(BLOCKS[-1], states[:1])
    assert host.prediction is not None and host.prediction[0] == wanted.token
    for layer, own in enumerate(golden.layers):
        counts = host.counts[layer][: own.cache.length].astype(np.int64)
        assert np.array_equal(counts, own.cache.counts[: own.cache.length])


def test_other_parameters_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, mean=system.p.mean + 1)
    require_same_digest(host_of, system, board, other)


def test_small_memory_is_refused(system: Any, tmp_path: Path) -> None:
    require_large_memory(host_of, system, tmp_path)


def test_reports_the_place_of_a_corrupted_weight(tmp_path: Path) -> None:
    run = prepared(tmp_path, 1)
    system: Any = run.system
    content = bytearray(system.lines.read_bytes())
    content[1] ^= 0x40
    system.lines.write_bytes(content)
    with pytest.raises(Mismatch, match=r"layer 0, keys, KV head \d, slot \d, element \d: "):
        generated(run)


def test_options_of_the_bare_accelerator_are_refused(tmp_path: Path) -> None:
    model = random_model()
    parameters = VedaAxiSystem.fitted(model, PRESET)
    settings = replace(SETTINGS, memory=memory_of("hbm2"))
    with pytest.raises(UserError, match="MEMORY is not for veda_axi; use TOP=veda"):
        VedaAxiSystem(model, parameters, settings, tmp_path)
