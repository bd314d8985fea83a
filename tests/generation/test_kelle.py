"""Text generation by a small random model in Kelle's Verilog, and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.kelle.whole_model import TokenResult, WholeModel, first_states
from golden.llm.language_model import open_language_model
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.kelle.parameters import KelleParameters
from synth.waveforms import read_waveforms
from systola.generation.kelle import KelleSystem
from systola.generation.run import Run
from systola.generation.system import Mismatch, Settings
from testbenches.kelle.host import Host
from tests.generation.random_models import (
    WordModel,
    generated,
    interrupted,
    predicted,
    random_model,
    running,
)

pytestmark = [pytest.mark.depends("kelle"), pytest.mark.usefixtures("compiled_once")]

SETTINGS = Settings(budget=128, reserved=32)
PROMPT = [3, 1, 4, 1, 5, 9]
SHAPE = {"hidden_size": 32, "head_size": 8, "context_length": 64}


PRESETS = entry_named("kelle").presets
TINY: KelleParameters = replace(PRESETS["tiny"], slots=8, context_length=256)
"""The smallest preset with slots that a short text fills, and the others' context length."""


def small_model(**changes: Any) -> WordModel:
    return WordModel(**vars(random_model(**SHAPE | changes)))


def prepared(
    folder: Path,
    tokens: int,
    prompt: list[int] = PROMPT,
    preset: KelleParameters = TINY,
    settings: Settings = SETTINGS,
) -> Run:
    model = small_model()
    fitted = KelleSystem.fitted(model, preset)
    parameters = KelleSystem.with_memory(fitted, settings)
    return running(KelleSystem(model, parameters, settings, folder), prompt, tokens)


def test_tokens_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    """States after each layer, slots, victims, popular tokens, predictions, by the run itself."""
    run = prepared(tmp_path, 12)
    tokens = generated(run)
    assert len(tokens) == 12 and len(set(tokens)) > 2
    assert predicted(run.system, PROMPT, tokens) == tokens
    # Eight slots a head: from the ninth token on every head of every layer evicts one.
    evicted = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evicted[7] == 0 and evicted[8:] == [4] * (len(evicted) - 8)
    system: Any = run.system
    assert any(own.inputs for own in system.golden.layers)
    for figures in run.progress.figures[1:]:
        assert 0 < figures["bound"] < figures["cycles"]
    record = json.loads(run.checkpoint.record.read_text())
    assert record["finished"] and record["generated"] == tokens


@pytest.mark.full
def test_sampled_waveform_is_stored_next_to_the_run(tmp_path: Path) -> None:
    """Twenty cycles of each twenty thousand, in the folder of the system's runs."""
    run = prepared(tmp_path, 2, settings=replace(SETTINGS, waves=True))
    assert len(generated(run)) == 2
    samples = run.system.samples
    assert samples is not None and samples.file.parent == tmp_path
    waves = read_waveforms(samples.file, "kelle")
    cycles = sum(figures["cycles"] for figures in run.progress.figures)
    assert 0 < waves.cycles - samples.cycles * (cycles // samples.every) <= samples.cycles
    assert any(waves.transitions(wave) for wave in waves.nets.values())


def test_tokens_of_w4a8_equal_those_of_the_golden_model(tmp_path: Path) -> None:
    assert len(generated(prepared(tmp_path, 3, preset=PRESETS["tiny_w4a8"]))) == 3


def test_blocks_give_the_tokens_and_states_of_single_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt in blocks of six tokens and fewer, longer than the slots: all evictions are equal.

    The golden model of the blocks is compared by the run itself, that of single tokens here.
    """
    prompt = [*PROMPT, *PROMPT[::-1], 2, 6]
    single = prepared(tmp_path / "single", 4, prompt)
    tokens = generated(single)
    run = prepared(tmp_path / "blocks", 4, prompt, preset=PRESETS["tiny_block"])
    results, block = [], WholeModel.block

    def recorded(*arguments: Any, **options: Any) -> list[TokenResult]:
        results.extend(block(*arguments, **options))
        return results[-len(arguments[2]) :]

    monkeypatch.setattr(WholeModel, "block", recorded)
    assert generated(run) == tokens == predicted(single.system, prompt, tokens)
    counts = [figures["count"] for figures in run.progress.figures]
    assert counts == [1, 6, 6, 1, 1, 1, 1]
    assert any(figures["evictions"] for figures in run.progress.figures)
    system: Any = run.system
    one: Any = single.system
    reference = one.golden
    reference.begin(first_states(one.model, prompt[0]))
    text = [*prompt, *tokens]
    for position, found in enumerate(results[: len(text) - 2], start=1):
        state = system.integers.embedded(system.model.embedding[text[position]], system.p)
        expected = reference.step(position, state, predict=False)
        assert np.array_equal(found.states, expected.states), position
        for own, step in zip(found.steps, expected.steps, strict=True):
            assert own.placements == step.placements and own.store == step.store
    # The prompt takes fewer cycles, and reads its weights fewer times.
    for figure in ("cycles", "bytes_read"):
        alone, together = (
            sum(f[figure] for f in one.progress.figures[1:] if f["first"] < len(prompt))
            for one in (single, run)
        )
        assert together < 0.7 * alone, figure


@pytest.mark.parametrize(
    ("first", "count", "message"),
    [
        (1, 7, "a block must have 1 to block = 6 tokens, not 7"),
        (1, 0, "a block must have 1 to block = 6 tokens, not 0"),
        (2, 1, "a block must begin at position 1, which continues the text, not at 2"),
    ],
)
def test_blocks_that_are_too_long_or_out_of_order_are_refused(
    tmp_path: Path, first: int, count: int, message: str
) -> None:
    system: Any = prepared(tmp_path, 1, preset=PRESETS["tiny_block"]).system
    host = Host(system.p, system.integers, system.harness, system.refresh)
    try:
        host.begin(system.golden.begin(first_states(system.model, 3)), system.golden.layers)
        with pytest.raises(UserError, match=message):
            host.run(first, np.zeros((count, system.p.hidden_size), np.int64), predict=False)
    finally:
        host.close()


def test_bits_are_lost_after_each_token_so_that_blocks_have_one(tmp_path: Path) -> None:
    model = small_model()
    parameters = KelleSystem.fitted(model, entry_named("kelle").parameters("tiny_block"))
    settings = replace(SETTINGS, retention="2drp", clock=500)
    system = KelleSystem(model, parameters, settings, tmp_path)
    assert [block.count for block in system.prompt_blocks(4)] == [1, 1, 1, 1]


def test_interrupted_run_takes_its_text_through_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generated(prepared(tmp_path, 8))
    folder = tmp_path / "interrupted"
    run = prepared(folder, 8)
    interrupted(run, monkeypatch, 10)
    again = prepared(folder, 8)
    assert generated(again) == whole
    assert again.resumed == 10


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (0, r"layer 0, attention's input|layer 0, output state, element \d+: .* in cycle \d+"),
        (-1, r"LM head, token and sum"),
    ],
)
def test_reports_layer_and_cycle_of_a_corrupted_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, words: str
) -> None:
    """A bit of each weight of the first layer, or of the vocabulary."""
    run = prepared(tmp_path, 1)
    system: Any = run.system
    begin = system.begin

    def corrupted(state: Any) -> None:
        begin(state)
        system.host._beats[part][:] ^= 0x40

    monkeypatch.setattr(system, "begin", corrupted)
    with pytest.raises(Mismatch, match=words):
        generated(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"hidden_size": 40},
            "hidden_size must be 32, not 40",
        ),
        ({"head_size": 6, "hidden_size": 24}, "head_size must be a multiple of rows = 4, not 6"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
        ({"rope_base": 10_000.5}, "rope_base must be an integer, not 10000.5"),
    ],
)
def test_dimensions_that_kelle_has_not_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        KelleSystem.fitted(small_model(**changes), TINY)


@pytest.mark.parametrize(
    ("clock", "message"),
    [
        (0, "clock_mhz must be an integer from 1 to 10000, not 0"),
        (3000, "intervals of 7200 us at 3000 MHz must have less than 32 ticks"),
    ],
)
def test_a_clock_at_which_ticks_cannot_be_counted_is_refused(
    tmp_path: Path, clock: int, message: str
) -> None:
    model, settings = small_model(), replace(SETTINGS, clock=clock)
    fitted = KelleSystem.fitted(model, TINY)
    # A short access, so that a read takes few cycles at every clock.
    fitted = replace(fitted, access_ps=600)
    with pytest.raises(ValueError, match=message):
        KelleSystem(model, KelleSystem.with_memory(fitted, settings), settings, tmp_path)


def test_a_prompt_of_one_token_is_refused(tmp_path: Path) -> None:
    model = small_model()
    parameters = KelleSystem.fitted(model, TINY)
    system = KelleSystem(model, parameters, SETTINGS, tmp_path)
    with pytest.raises(UserError, match="at least two tokens for Kelle: the first is a prefill"):
        system.prompt_blocks(1)


def test_pauses_at_every_port_change_nothing(tmp_path: Path) -> None:
    """In half of all cycles, with the vocabulary in between."""
    system: Any = prepared(tmp_path, 1).system
    host = Host(system.p, system.integers, system.harness, system.refresh, 1)
    try:
        prefills = system.golden.begin(first_states(system.model, PROMPT[0]))
        host.begin(prefills, system.golden.layers)
        for position in range(1, 14):
            state = system.integers.embedded(system.model.embedding[position], system.p)
            predict = position % 3 != 0
            expected = system.golden.step(position, state, predict=predict)
            host.run(position, state[np.newaxis], predict=predict)
            found = np.stack([layer.output for layer in host.layers[0]])
            assert np.array_equal(found, expected.states), position
            if predict:
                assert host.prediction == (expected.token, int(expected.sums.max()))
    finally:
        host.close()


def test_bits_that_the_edram_loses_reach_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits in both; without them in the Verilog, the run ends with a difference."""
    settings = replace(SETTINGS, retention="2drp_2062", clock=500)
    run = prepared(tmp_path, 12, settings=settings)
    tokens = generated(run)
    assert predicted(run.system, PROMPT, tokens) == tokens
    lost = [figures["decided"]["lost bits"] for figures in run.progress.figures[1:]]
    assert sum(lost) > 20
    system: Any = run.system
    assert system.refresh.tick_cycles == 360 * 500
    intact: Any = prepared(tmp_path / "intact", 1).system
    text = [*PROMPT, *tokens]
    assert np.any(system.logits(text) != intact.logits(text))

    own = Host.run

    def without_losses(*arguments: Any, changed: Any, **options: Any) -> None:
        own(*arguments, **options)

    monkeypatch.setattr(Host, "run", without_losses)
    with pytest.raises(Mismatch):
        generated(prepared(tmp_path / "not written", 12, settings=settings))


@pytest.mark.full
def test_smollm2_generates(tmp_path: Path) -> None:
    """Thirty-two tokens on a quarter of the array, of which the last ones evict in every head."""
    model = open_language_model()
    preset = replace(entry_named("kelle").parameters("smollm2"), rows=16, bands=8)
    parameters = KelleSystem.fitted(model, replace(preset, slots=32, window=16))
    settings = Settings(budget=128, reserved=32)
    system = KelleSystem(model, parameters, settings, tmp_path)
    run = running(system, model.tokens_of("The capital of France is"), 32)
    assert len(generated(run)) == 32
    assert run.continuation(run.progress.tokens).startswith(" Paris")
    evictions = [len(figures["evictions"]) for figures in run.progress.figures]
    assert evictions[-4:] == [model.shape.layers * parameters.kv_heads] * 4
