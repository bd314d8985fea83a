"""Text generation by a small random model in LAD with the AXI shell, by the host library."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.lad.whole_model import WholeModel
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.generation.lad_axi import LadAxiSystem
from systola.generation.run import Run
from systola.generation.shell import MEMORY
from systola.generation.system import Mismatch
from systola.host.lad import LadHost
from systola.host.verilated import Verilated
from testbenches.external_memory import memory_of
from tests.generation.boards import failing, require_large_memory, require_same_digest
from tests.generation.random_models import PROMPT, generated, interrupted, predicted, running
from tests.generation.test_lad import SETTINGS, small_model

pytestmark = pytest.mark.depends("lad", "lad_axi")

PRESET = entry_named("lad_axi").parameters("tiny")


def system_of(folder: Path, settings: Any = SETTINGS) -> LadAxiSystem:
    model = small_model()
    return LadAxiSystem(model, LadAxiSystem.fitted(model, PRESET), settings, folder)


def prepared(folder: Path, tokens: int) -> Run:
    return running(system_of(folder), PROMPT, tokens)


def test_parameters_are_those_of_the_unit_test(tmp_path: Path) -> None:
    assert system_of(tmp_path).p == PRESET


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """States after each layer, rows of all heads in memory, predictions, by the run itself."""
    run = prepared(tmp_path, 14)
    tokens = generated(run)
    assert len(tokens) == 14 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    last = run.progress.figures[-1]["decided"]
    # Positions have left the latest ones: they are in the caches, and not all are corrected.
    assert last["updated modes"] and last["active positions"] < last["positions"]
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_read"] > figures["bytes_written"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not [*tmp_path.glob("memory-*"), *tmp_path.glob("rows-*")]


def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a checkpoint are written to memory; no token is decoded again."""
    whole = generated(prepared(tmp_path / "whole", 8))
    folder = tmp_path / "interrupted"
    interrupted(prepared(folder, 8), monkeypatch, 9)
    again = prepared(folder, 8)
    assert generated(again) == whole
    assert again.resumed == 9


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared system, whose transports the tests open."""
    return prepared(tmp_path_factory.mktemp("system"), 1).system


def host_of(system: Any, transport: Verilated, parameters: Any = None) -> LadHost:
    return LadHost(transport, parameters or system.p, system.half, timeout=600)


class Text:
    """A text in the accelerator, and in a golden model of its own."""

    def __init__(self, system: Any, host: LadHost) -> None:
        self.system, self.host = system, host
        self.golden = WholeModel(system.lad, system.half)

    def begin(self) -> None:
        """Begin a new text in both."""
        self.golden.begin()
        self.host.begin()

    def states(self) -> Any:
        """Return the embedded next tokens, of which each sample has another one."""
        position = self.host.length
        return self.system.embedding[[position, 3 * position + 1]]

    def decode(self, *, predict: bool) -> None:
        """Decode the next tokens in both, and compare."""
        position, host = self.host.length, self.host
        expected = self.golden.step(position, self.states(), predict=predict)
        host.run(self.states(), predict=predict)
        assert host.length == position + 1
        assert np.array_equal(host.states, expected.states), position
        assert np.array_equal(host.flags, expected.flags), position
        assert host.predictions == expected.predictions
        assert host.heads.difference(self.golden.lad.tiles.heads, position + 1) is None


def test_pauses_at_every_channel_change_nothing(system: Any, tmp_path: Path) -> None:
    """Two texts: the second one begins with empty caches, in rows that the first one has left."""
    with Verilated(system.harness, system.p, MEMORY, tmp_path, seed=1) as transport:
        text = Text(system, host_of(system, transport))
        for tokens in (9, 3):
            text.begin()
            for position in range(tokens):
                text.decode(predict=position % 3 != 0)


@pytest.mark.parametrize(
    ("port", "number", "response"),
    [
        ("weight_reads_3", 2, Response.SLVERR),
        ("group_reads", 5, Response.DECERR),
        ("cache_writes", 7, Response.SLVERR),
        ("state_writes", 1, Response.DECERR),
    ],
)
def test_token_is_repeated_after_an_error_response(
    system: Any, board: Verilated, port: str, number: int, response: Response
) -> None:
    """Some heads have stored the token: the host decodes the text again, then the token."""
    text = Text(system, host_of(system, board))
    for _position in range(7):
        text.decode(predict=False)
    with failing(board, port, number, response):
        text.host.run(text.states(), predict=True)
    assert text.host.length == 7
    for _position in range(2):
        text.decode(predict=True)


def test_too_long_text_is_refused(system: Any, board: Verilated) -> None:
    host, slots = host_of(system, board), system.lad.context_length
    host._states = [system.embedding[:2]] * slots
    with pytest.raises(UserError, match=f"at most {slots} tokens, not {slots + 1}"):
        host.run(system.embedding[:2], predict=False)


def test_other_parameters_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, outstanding=system.p.outstanding + 1)
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
        words = system.board.read_words("weights", system.lad.layer_transfers, 1)
        system.board.write_words("weights", system.lad.layer_transfers, words ^ 0x40)

    monkeypatch.setattr(system, "begin", corrupted)
    with pytest.raises(Mismatch, match=r"state after layer 1, sample 0, element \d: .* differ\)$"):
        generated(run)


def test_wrong_rows_in_memory_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode that no step selected is detected."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    own = system._compare

    def corrupted(decoded: Any, expected: Any) -> None:
        heads = system.rows.model_heads(system.done)
        heads[5].modes[0] ^= 1
        system.rows.write(heads)
        own(decoded, expected)

    monkeypatch.setattr(system, "_compare", corrupted)
    with pytest.raises(Mismatch, match=r"layer 1, \(batch, head\) pair 5, modes at \(0,\)"):
        generated(run)


def test_options_of_the_bare_accelerator_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="MEMORY is not for lad_axi; use TOP=lad"):
        system_of(tmp_path, replace(SETTINGS, memory=memory_of("hbm2")))


@pytest.mark.full
def test_smollm2_is_fitted(tmp_path: Path) -> None:
    """The dimensions of SmolLM2: a unit has a row of each group of seven rows of a matrix."""
    from golden.llm.language_model import open_language_model

    preset = entry_named("lad_axi").parameters("smollm2")
    p = LadAxiSystem.fitted(open_language_model(), preset)
    # Three periods of three query heads with their key and value; inputs of 9 or 24 slices of 64.
    queries, output, gate_and_up, down = (-(-rows // 7) for rows in (320, 576, 3072, 576))
    layer = 9 * (3 * queries + output + gate_and_up) + 24 * down
    vocabulary = 9 * p.lad.pieces * -(-49_152 // (7 * p.lad.pieces))
    assert p.lad.layers == 30 and p.unit_words == 30 * layer + vocabulary
