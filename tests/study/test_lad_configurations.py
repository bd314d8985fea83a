"""The paper's three configurations: capacities, cycles and energy against computations by hand."""

import json
from pathlib import Path

import pytest

from golden.study.lad_configurations import (
    CONFIGURATIONS,
    HBM_PJ_PER_BIT,
    LLAMA2_7B,
    STEPS,
    Configuration,
    Step,
    energy,
    full_attention,
    largest_batch,
    locality_aware,
    matrix_cycles,
    weights,
)
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.target import Target

LONGEST = STEPS[-1]
BATCH = 12


def test_weights_are_those_of_llama2_7b() -> None:
    # All parameters but the embedding and the norms: 6,738,415,616 - 131,072,000 - 266,240.
    assert weights() == 6_607_077_376


def test_the_batch_fills_the_memory() -> None:
    batch = largest_batch(4096)
    sample = 2 * 32 * 32 * 128 * 4096 * 2
    assert batch * sample + 2 * weights() <= 40 << 30 < (batch + 6) * sample + 2 * weights()


def test_a_matrix_takes_its_products_or_its_bytes() -> None:
    # Six tiles have 5,376 multipliers; the memory delivers 768 weights per cycle.
    assert matrix_cycles(5376 * 768, 1) == 5376
    assert matrix_cycles(5376 * 768, 7) == 5376
    assert matrix_cycles(5376 * 768, 8) == 8 * 768


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step.length))
def test_more_sram_is_never_slower(step: Step) -> None:
    tokens = [locality_aware(step, largest_batch(step.length), one) for one in CONFIGURATIONS]
    cycles = [token.attention for token in tokens]
    assert cycles == sorted(cycles, reverse=True)
    assert [token.rows for token in tokens] == sorted(token.rows for token in tokens)
    for one, token in zip(CONFIGURATIONS, tokens, strict=True):
        # Rows of all samples of a tile fit; no row is needed that was not active before.
        assert token.rows * token.batch / 6 <= one.rows
        assert token.rows <= step.active * step.hit_ratio + 1e-9


def test_without_time_to_fetch_ahead_the_memory_takes_all_words() -> None:
    # With one sample per tile, the weights of a head take as long as the memory.
    token = locality_aware(LONGEST, 6, CONFIGURATIONS[-1])
    assert token.rows == 0
    assert token.attention == pytest.approx(1024 * LONGEST.words / 128)


def test_full_attention_reads_all_positions() -> None:
    token = full_attention(LONGEST, BATCH)
    words = 1024 * BATCH * 2 * 128 * 4097
    assert token.words == words
    assert token.attention == pytest.approx(words / 768)
    assert token.linear == pytest.approx(weights() * BATCH / 5376)


def test_energy_is_that_of_words_and_cycles() -> None:
    configuration = CONFIGURATIONS[0]
    token = locality_aware(LONGEST, BATCH, configuration)
    parts = energy(token, configuration, whole=True)
    bits = 16 * (1024 * LONGEST.words + weights() / BATCH)
    assert parts["HBM"] == pytest.approx(bits * HBM_PJ_PER_BIT * 1e-9)
    # 851.58 mW in each of six tiles, at 1 GHz.
    seconds = token.cycles * 1e-9
    assert parts["SRAM"] == pytest.approx(6 * 851.58 * seconds / BATCH)
    attention = energy(token, configuration, whole=False)
    assert all(attention[name] < parts[name] for name in parts)


def test_heads_are_those_of_the_preset() -> None:
    for one in ("lad_1_5", "lad_2_5", "lad_3_5"):
        p = entry_named("lad_tile").parameters(one)
        assert (p.vector.head_size, p.stored_heads) == (LLAMA2_7B.head_size, LLAMA2_7B.heads)


@pytest.mark.full
@pytest.mark.parametrize(
    ("preset", "configuration"),
    list(zip(("lad_1_5", "lad_2_5", "lad_3_5"), CONFIGURATIONS, strict=True)),
)
def test_memories_fit_the_sram(preset: str, configuration: Configuration, tmp_path: Path) -> None:
    emitted = emit_unit(entry_named("lad_tile"), preset, Target.FPGA, directory=tmp_path)
    memories = json.loads(emitted.documents[0].read_text())["memories"]
    bits = sum(one["width"] * one["depth"] * one["count"] for one in memories)
    capacity = configuration.megabytes * (8 << 20)
    assert 0.98 * capacity < bits <= capacity
