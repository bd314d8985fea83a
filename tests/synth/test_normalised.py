"""The normalised rows against cases that were computed by hand from the formulas on the page."""

import copy
import re
from typing import Any

import pytest

from golden.study.kelle_cost import DRAM_GB_S, DRAM_W
from hdl.catalog import entry_named
from synth import comparison, normalised

HAND: dict[str, Any] = {
    "name": "Hand",
    "absent": "not measured",
    "memory": {
        "where": "off-chip",
        "kind": "HBM2",
        "port_bytes": 64,
        "paper_bytes_per_cycle": 20,
        "paper_clock_mhz": 500,
    },
    "figures": {
        "cycles": 2_000_000,
        "bound": 1_000_000,
        "bytes_per_token": 100_000_000,
        "multipliers": 100,
        "multipliers_per_product": 2,
        "area_um2": 1_000_000.0,
        "clock_mhz": 200.0,
        "energy_mj": 5.0,
        "fastest_um2": 2_000_000.0,
        "fastest_mhz": 400.0,
        "memory_bits": 2_000_000,
        "edram_bits": 500_000,
    },
    "commands": {},
}
"""A system of round numbers. Its memory: 20 bytes x 500 MHz = 10 GB/s."""


@pytest.fixture
def hand() -> dict[str, Any]:
    return copy.deepcopy(HAND)


@pytest.mark.parametrize(
    ("mhz", "gb_s", "speed"),
    (
        (None, None, 100.0),  # 5 ms of cycles at 400 MHz; 10 ms of bytes at 10 GB/s.
        (None, 25.6, 200.0),  # 5 ms; 3.90625 ms.
        (1000.0, 25.6, 256.0),  # 2 ms; 3.90625 ms.
        (1000.0, 64.0, 500.0),  # 2 ms; 1.5625 ms.
        (1000.0, None, 100.0),
    ),
)
def test_speed_is_limited_by_the_longer_of_cycles_and_transfer(
    mhz: float | None, gb_s: float | None, speed: float, hand: dict[str, Any]
) -> None:
    assert normalised.tokens_per_second(hand, mhz, gb_s) == pytest.approx(speed)


def test_the_limit_is_the_longer_time(hand: dict[str, Any]) -> None:
    assert normalised.limit(hand, None) == "memory"
    hand["memory"]["paper_clock_mhz"] = 5000
    assert normalised.limit(hand, None) == "cycles"
    # 5 ms of cycles at 400 MHz; 5.1 and 4.9 ms of bytes.
    assert normalised.limit(hand, 0.1 / 5.1e-3) == "memory"
    assert normalised.limit(hand, 0.1 / 4.9e-3) == "cycles"


def test_shares_of_bandwidth_and_multipliers(hand: dict[str, Any]) -> None:
    assert normalised.bandwidth_share(hand) == pytest.approx(1.0)
    # 40 GB/s: 200 tokens/s x 0.1 GB of 40.
    hand["memory"]["paper_clock_mhz"] = 2000
    assert normalised.bandwidth_share(hand) == pytest.approx(0.5)
    # 30 million products on two multipliers each, of 100 x 2 million.
    assert normalised.multiplier_share(hand, 30_000_000) == pytest.approx(0.3)


def test_area_of_memories_is_bits_times_density(hand: dict[str, Any]) -> None:
    """206.91 x 219.8 um = 45,478.818 um2 of 79,872 bits: 0.569396 um2; of eDRAM 0.249598 um2."""
    # 1.5 million bits of SRAM: 0.854094 mm2; half a million of eDRAM: 0.124799 mm2.
    assert normalised.memory_mm2(hand) == pytest.approx(0.978893, rel=1e-5)
    assert normalised.area_mm2(hand) == pytest.approx(2.978893, rel=1e-5)
    del hand["figures"]["edram_bits"]
    assert normalised.memory_mm2(hand) == pytest.approx(1.138792, rel=1e-5)
    hand["figures"]["memory_bits"] = 0
    # 200 tokens/s at 64 GB/s on 2 mm2 of logic.
    assert normalised.speed_per_area(hand, 64.0) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("kind", "mj"),
    (
        ("HBM2", 3.12),  # 800 Mbit x 3.9 pJ
        ("LPDDR4", 18.34375),  # 11.74 W / 64 GB/s x 0.1 GB
        ("DDR4", 16.25),  # 12.5 million words of 64 bits x 1.3 nJ
        ("in-bank", 1.2967695),  # 97,656.25 rows x 909 pJ + 800 Mbit x 1.51 pJ
    ),
)
def test_energy_of_the_dram_by_kind(kind: str, mj: float, hand: dict[str, Any]) -> None:
    hand["memory"]["kind"] = kind
    assert normalised.dram_mj(hand) == pytest.approx(mj, rel=1e-6)


def test_energy_is_the_sum_of_logic_memory_and_dram(hand: dict[str, Any]) -> None:
    # 25 million accesses of 64 bits x 20 pJ.
    assert normalised.on_chip_mj(hand) == pytest.approx(0.5)
    assert normalised.energy_mj(hand) == pytest.approx(5.0 + 0.5 + 3.12)


def test_a_system_in_the_banks_without_off_chip_bytes(hand: dict[str, Any]) -> None:
    hand["memory"] = {"where": "banks", "kind": "in-bank", "port_bytes": 128, "clock_mhz": 250}
    # 2 million cycles at 250 MHz, the only legal clock.
    assert normalised.tokens_per_second(hand, None, None) == pytest.approx(125.0)
    assert normalised.tokens_per_second(hand, None, 64.0) == "not measured"
    assert normalised.tokens_per_second(hand, 1000.0, None) == "none legal"
    assert normalised.bandwidth_share(hand) == "its banks"
    assert normalised.speed_per_area(hand, 64.0) == "not measured"
    assert normalised.on_chip_mj(hand) == "not measured"
    assert normalised.energy_mj(hand) == "not measured"
    # Neither netlist reaches 250 MHz.
    hand["figures"]["fastest_mhz"] = 249.0
    assert normalised.energy_mj(hand) == "none legal"


def test_a_system_in_the_banks_with_off_chip_bytes(hand: dict[str, Any]) -> None:
    hand["memory"] = {"where": "banks", "kind": "in-bank", "port_bytes": 128, "clock_mhz": 250}
    hand["figures"] |= {"clock_mhz": 250.0, "channel_bytes": 10_000_000}
    # 8 ms of cycles; 0.15625 ms of bytes at 64 GB/s, 10 ms at 1 GB/s.
    assert normalised.tokens_per_second(hand, None, None) == pytest.approx(125.0)
    assert normalised.tokens_per_second(hand, None, 64.0) == pytest.approx(125.0)
    assert normalised.tokens_per_second(hand, None, 1.0) == pytest.approx(100.0)
    assert normalised.limit(hand, 64.0) == normalised.limit(hand, None) == "cycles with bank times"
    assert normalised.limit(hand, 1.0) == "memory"
    # 2.5 million accesses of 64 bits x 20 pJ; 1.2967695 mJ in the banks, 80 Mbit x 3.9 pJ.
    assert normalised.on_chip_mj(hand) == pytest.approx(0.05)
    assert normalised.dram_mj(hand) == pytest.approx(1.2967695 + 0.312)
    assert normalised.energy_mj(hand) == pytest.approx(5.0 + 0.05 + 1.2967695 + 0.312)


def test_no_kept_speed_exceeds_cycles_or_bandwidth() -> None:
    """By exact fractions of the kept figures, which the rows' formula does not use."""
    for system in normalised.accelerators(comparison.kept()).values():
        figures, memory = system["figures"], system["memory"]
        for gb_s in normalised.BANDWIDTHS:
            speed = normalised.tokens_per_second(system, None, gb_s)
            moved = figures["channel_bytes" if memory["where"] == "banks" else "bytes_per_token"]
            assert isinstance(speed, float)
            assert speed * figures["cycles"] <= figures["fastest_mhz"] * 1e6 * (1 + 1e-12)
            assert speed * moved <= gb_s * 1e9 * (1 + 1e-12)


def test_weights_are_those_of_the_language_model() -> None:
    """Matrices of SmolLM2: hidden states of 576, 192 of keys and values, 1,536, 49,152 tokens."""
    layer = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536
    assert comparison.kept()["weights"] == 30 * layer + 49152 * 576


def test_edram_bits_are_those_of_the_parameters_that_ran() -> None:
    chosen = entry_named("kelle").dimensions(
        "smollm2", {"rows": "16", "bands": "8", "words": "16384"}
    )
    p = entry_named("kelle").parameters(chosen) if isinstance(chosen, str) else chosen
    edram = p.memory.edram
    bits = 4 * edram.banks * edram.word_bytes * 8 * p.words
    assert comparison.kept()["systems"]["kelle"]["figures"]["edram_bits"] == bits


def test_bandwidths_are_those_that_the_texts_state() -> None:
    systems = normalised.accelerators(comparison.kept())
    found = {key: normalised.paper_gb_s(system) for key, system in systems.items()}
    # LAD: 80 channels of 19.2 GB/s for six tiles. MEADOW: 12 Gb/s.
    stated = {"veda": 256.0, "kelle": 64.0, "lad": 80 * 19.2 / 6, "meadow": 12 / 8}
    assert found == pytest.approx(stated | {"p3llm": None})


def test_constants_agree_with_the_cost_model_of_kelle() -> None:
    assert normalised.DRAM_PJ_PER_BIT["LPDDR4"] == pytest.approx(DRAM_W / DRAM_GB_S / 8 * 1e3)
    assert set(normalised.DRAM_PJ_PER_BIT) == set(normalised.DRAM_SOURCES)


def test_every_row_has_a_formula_and_a_source() -> None:
    tables = normalised.tables(comparison.kept())
    assert len({row.label for row in normalised.ROWS}) == len(normalised.ROWS)
    for row in normalised.ROWS:
        assert row.formula and row.source and row.label in tables["formulas"]
        if re.search("mm2|mJ", row.label):
            assert re.search("modelled|estimated|mm2, at most|and DRAM", row.label)
        if "tokens/s" in row.label:
            assert "at most" in row.label
