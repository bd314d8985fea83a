"""Text generation by a small random model in MEADOW with the AXI shell, by the host library."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from golden.meadow.whole_model import WholeModel
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.cli import main
from systola.generation.meadow import MeadowSystem
from systola.generation.meadow_axi import MeadowAxiSystem
from systola.generation.run import Run
from systola.generation.shell import MEMORY
from systola.generation.system import Mismatch
from systola.host.meadow import MeadowHost
from systola.host.transport import RefusedAccessError
from systola.host.verilated import Verilated
from testbenches.external_memory import memory_of
from tests.generation.boards import failing, require_large_memory, require_same_digest
from tests.generation.random_models import generated, interrupted, predicted, running
from tests.generation.small_model import write_small_model
from tests.generation.test_meadow import PROMPT, SETTINGS, small_model

pytestmark = pytest.mark.depends("meadow", "meadow_axi")

PRESET = entry_named("meadow_axi").parameters("tiny")


def prepared(folder: Path, tokens: int) -> Run:
    model = small_model()
    parameters = MeadowAxiSystem.fitted(model, PRESET)
    return running(MeadowAxiSystem(model, parameters, SETTINGS, folder), PROMPT, tokens)


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """The run compares caches and sums; the tokens are also those of MEADOW without the shell."""
    run = prepared(tmp_path / "axi", 8)
    tokens = generated(run)
    assert len(tokens) == 8 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    for figures in run.progress.figures:
        assert 0 < figures["bound"] < figures["cycles"]
        assert figures["bytes_read"] > figures["bytes_written"] > 0
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens
    assert not list(run.folder.glob("memory-*"))


def test_resumed_run_generates_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(prepared(tmp_path / "whole", 5))
    folder = tmp_path / "interrupted"
    interrupted(prepared(folder, 5), monkeypatch, 3)
    again = prepared(folder, 5)
    assert generated(again) == whole and again.resumed == len(PROMPT) + 2


def test_reports_the_place_of_a_corrupted_byte(tmp_path: Path) -> None:
    run = prepared(tmp_path, 1)
    system: Any = run.system
    place = system.packed.layers[0].matrices["key"]["packet_address"]
    system.packed.images["packets"][place, 1] ^= 0x40
    with pytest.raises(Mismatch, match=r"layer 0, keys, KV head \d, token \d, element \d: "):
        generated(run)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared system, whose transports the tests open."""
    return prepared(tmp_path_factory.mktemp("system"), 1).system


def host_of(system: Any, transport: Verilated, parameters: Any = None) -> MeadowHost:
    return MeadowHost(transport, parameters or system.p, system.packed)


def text(system: Any, transport: Verilated) -> tuple[list[int], list[int], int]:
    """Return three tokens by the host library and by the golden model, and the cycles."""
    host = host_of(system, transport)
    golden = WholeModel(system.meadow, system.packed.integers)
    found, expected, cycles = list[int](), list[int](), 0
    for tokens in (PROMPT, [7], [40]):
        states = system.packed.integers.embedded(system.model.embedding[tokens])
        token = host.run(states, predict=True)
        assert token is not None and host.last is not None
        found.append(token)
        expected.append(golden.step(states).token)
        cycles += host.last.cycles
    return found, expected, cycles


@pytest.mark.parametrize("seed", [1, 2])
def test_pauses_at_every_channel_change_nothing(system: Any, tmp_path: Path, seed: int) -> None:
    cycles = []
    for number, own in enumerate((0, seed)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Verilated(system.harness, system.p, MEMORY, folder, seed=own) as transport:
            found, expected, spent = text(system, transport)
        assert found == expected
        cycles.append(spent)
    assert cycles[1] > cycles[0]


@pytest.mark.parametrize(
    ("port", "number", "response"),
    [("packet_reads", 2, Response.SLVERR), ("cache_writes", 1, Response.DECERR)],
)
def test_block_is_repeated_after_an_error_response(
    system: Any, board: Verilated, port: str, number: int, response: Response
) -> None:
    host = host_of(system, board)
    states = system.packed.integers.embedded(system.model.embedding[PROMPT])
    with failing(board, port, number, response):
        host.run(states, predict=True)
    assert host.length == 0
    golden = WholeModel(system.meadow, system.packed.integers)
    assert host.run(states, predict=True) == golden.step(states).token


def test_other_parameters_are_refused_before_a_write(system: Any, board: Verilated) -> None:
    other = replace(system.p, outstanding=system.p.outstanding + 1)
    require_same_digest(host_of, system, board, other)


def test_small_memory_is_refused(system: Any, tmp_path: Path) -> None:
    require_large_memory(host_of, system, tmp_path)


def test_refused_access_is_an_error(board: Verilated) -> None:
    with pytest.raises(RefusedAccessError, match="read at offset 0xffc: response 3"):
        board.read_register(0xFFC)


def test_program_without_matrices_ends_as_stuck(system: Any, board: Verilated) -> None:
    """The transport ends a job that transfers nothing; a later access reports it as well."""
    host = host_of(system, board)
    states = system.packed.integers.embedded(system.model.embedding[PROMPT])
    host.run(states, predict=True)
    assert host.program is not None
    with pytest.raises(UserError, match=r"cycle \d+: no transfer for \d+ cycles"):
        host.device.run([len(host.program.instructions), 0], 600)
    with pytest.raises(UserError, match="the simulation has ended"):
        board.read_register(0)


def test_options_of_the_bare_accelerator_and_narrow_addresses_are_refused(tmp_path: Path) -> None:
    model = small_model()
    parameters = MeadowAxiSystem.fitted(model, PRESET)
    for name, value in (("waves", True), ("memory", memory_of("hbm2"))):
        settings = replace(SETTINGS, **{name: value})
        with pytest.raises(
            UserError, match=f"{name.upper()} is not for meadow_axi; use TOP=meadow"
        ):
            MeadowAxiSystem(model, parameters, settings, tmp_path)
    meadow = replace(parameters.meadow, address_bits=24)
    narrow = replace(parameters, meadow=meadow, axi_address_bits=31)
    with pytest.raises(UserError, match=r"axi_address_bits must be at least 32 .*, not 31"):
        MeadowAxiSystem(model, narrow, SETTINGS, tmp_path)


def test_model_that_meadow_refuses_is_refused() -> None:
    with pytest.raises(Exception, match="norm_epsilon must be 1e-05, not 1e-06"):
        MeadowAxiSystem.fitted(small_model(norm_epsilon=1e-6), PRESET)
    assert MeadowAxiSystem.fitted(small_model(), PRESET).meadow == MeadowSystem.fitted(
        small_model(), PRESET.meadow
    )


def test_verb_prints_text_and_table(tmp_path: Path) -> None:
    """The small model has the dimensions of the model above, so that its program is cached."""
    dimensions: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32}
    dimensions["max_position_embeddings"] = 16
    model = write_small_model(tmp_path / "small", **dimensions)
    options = ["--top", "meadow_axi", "--preset", "tiny", "--model", str(model)]
    options += ["--prompt", "3 1 4", "--tokens", "6"]
    result = CliRunner().invoke(main, ["generate", *options])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()[0].split()) == 9
    assert "on MEADOW with the AXI shell" in result.output
    assert re.search(r"golden model +│ tokens, their sums, and caches are equal", result.output)
    assert re.search(r"idle simulation +│ [\d,]+ cycles/s; the run: \d\.\d\d", result.output)


def test_other_verbs_do_not_measure_the_shell() -> None:
    result = CliRunner().invoke(main, ["perplexity", "--top", "meadow_axi"])
    assert result.exit_code == 2 and "TOP must be one of" in result.output
