"""Figures and Table 7 of Kelle's paper by the calculators: known products, and the page."""

from dataclasses import replace

import pytest

from golden.study.kelle_cost import (
    BATCH,
    KELLE,
    LLAMA2_7B,
    ORIGINAL_SRAM,
    TASKS,
    Model,
    Task,
    decode_cost,
    prefill_cost,
    step_of,
)
from golden.study.kelle_figures import (
    BUDGETS,
    energy_factor,
    larger_memory,
    refresh_share,
    tables,
)
from hdl.paths import ROOT

STEP = Task(context=1000, decoded=1, budget=500)
WEIGHTS, CACHED = 6.6e9, 16 * 1000 * 32 * 2 * 4096 * 2


def test_a_larger_memory_saves_its_own_size() -> None:
    wanted = (WEIGHTS + CACHED - (4 << 20)) / (WEIGHTS + CACHED - (8 << 20))
    assert larger_memory(STEP) == pytest.approx(wanted, rel=1e-12)


def test_refresh_takes_its_power_for_the_whole_step() -> None:
    seconds = (WEIGHTS + CACHED) / 64e9
    cost = decode_cost(replace(KELLE, evicts=False, recomputed=0, refresh_ms=0.045), STEP)
    assert cost.seconds == pytest.approx(seconds)
    assert cost.parts["refresh"] == pytest.approx(1.14 / 0.045 * seconds)
    assert cost.parts["DRAM"] == pytest.approx(11.74 * seconds)
    assert cost.joules == pytest.approx(sum(cost.parts.values()))
    assert 0.46 < refresh_share(STEP) < 0.7


def test_recomputation_costs_the_cycles_of_the_verilog() -> None:
    """In a batch of 16, each recomputed token of a layer of SmolLM2 takes 216 cycles."""
    smollm2 = Model(layers=1, hidden_size=576, cached_size=192, weights=1.0)
    system = replace(KELLE, multiplies=True, recomputed=0.5)
    more = step_of(system, 128, smollm2).products - step_of(KELLE, 128, smollm2).products
    cycles = more / 1024 / (0.5 * 128 * BATCH)
    page = " ".join((ROOT / "docs/kelle/options.md").read_text().split())
    assert "takes 87,303 cycles with 64 recomputed tokens and 90,543 with 79" in page
    assert cycles == pytest.approx((90_543 - 87_303) / (79 - 64))


def test_the_array_recomputes_until_the_memory_is_done() -> None:
    step = step_of(replace(KELLE, fills=True), 2048, LLAMA2_7B)
    assert step.products / 1024e9 == pytest.approx((WEIGHTS + step.cached) / 64e9)
    whole = step_of(replace(KELLE, recomputed=0), 2048, LLAMA2_7B).cached
    assert 0.005 < 1 - step.cached / whole < 0.01
    # With an array that has no time left, nothing is recomputed.
    small = replace(ORIGINAL_SRAM, side=4)
    assert step_of(replace(small, fills=True), 500, LLAMA2_7B) == step_of(small, 500, LLAMA2_7B)


def test_a_prefill_multiplies_half_of_the_pairs_of_tokens() -> None:
    task, tokens = Task(context=64, decoded=1, budget=8), 16 * 64
    cost = prefill_cost(ORIGINAL_SRAM, task)
    # Between the lengths without and with the token itself: half of all pairs.
    pairs = 16 * 32 * 4096 * 2 * (sum(range(64)) + sum(range(1, 65)))
    products = cost.parts["array"] / (6.52 * 0.17 / 1024e9)
    assert products - WEIGHTS * tokens == pytest.approx(pairs, rel=1e-9)
    evicting = prefill_cost(replace(ORIGINAL_SRAM, evicts=True), task)
    saved = (cost.parts["DRAM"] - evicting.parts["DRAM"]) / 11.74 * 64e9
    assert saved == pytest.approx(16 * 56 * 32 * 2 * 4096 * 2)


def test_a_larger_budget_saves_less() -> None:
    for model, factors in BUDGETS.values():
        found = [energy_factor(KELLE, budget, model) for budget in factors]
        assert found == sorted(found, reverse=True)
        assert all(ours < paper for ours, paper in zip(found, factors.values(), strict=True))
    # A budget of the whole text evicts nothing.
    whole = TASKS["PG19"].context + TASKS["PG19"].decoded
    kept = replace(KELLE, evicts=False)
    assert energy_factor(KELLE, whole, LLAMA2_7B) == energy_factor(kept, whole, LLAMA2_7B)


def test_the_page_has_these_tables() -> None:
    page = (ROOT / "docs/kelle/study.md").read_text()
    for table in tables():
        for row in (table.columns, *table.rows):
            assert "| " + " | ".join(row) + " |" in page, table.title
