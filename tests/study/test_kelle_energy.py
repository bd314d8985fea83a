"""Energy of a token by the paper's constants: known products, and the order of the policies."""

from dataclasses import replace

import pytest

from golden.study.kelle_energy import (
    ALL_SLOTS,
    FEW_TOKENS,
    REFRESHES,
    Token,
    cached_bytes,
    energies,
    generating,
)
from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.paths import ROOT
from synth.comparison import kept


def test_runs_are_those_of_the_comparison() -> None:
    found = kept()
    figures = found["systems"]["kelle"]["figures"]
    assert (FEW_TOKENS.cycles, FEW_TOKENS.moved) == (figures["cycles"], figures["bytes_per_token"])
    assert found["weights"] == FEW_TOKENS.weights
    assert f"{ALL_SLOTS.cycles:,}" in (ROOT / "docs/generate.md").read_text()


def test_parts_are_products_of_table_1() -> None:
    found = energies(generating(), FEW_TOKENS, RefreshIntervals())
    assert found["DRAM"] == pytest.approx(134.584743 * 11.74 / 64)
    assert found["weight SRAM, written and read"] == pytest.approx(2 * 134.479872 * 0.1859)
    # 30 layers, 3 heads, 128 slots and the arriving token, key and value of 64 words of 16 bits.
    assert found["KV eDRAM, rows"] == pytest.approx(30 * 3 * 129 * 256 * 84.8e-9)
    assert found["leakage of both"] == pytest.approx((0.415 / 2 + 0.154) * 1.096727)


def test_a_full_published_edram_takes_the_papers_energy_per_refresh() -> None:
    p = replace(generating(), slots=128, layers=1)
    token = Token(cycles=1_053_659, moved=1, weights=1)
    found = energies(p, token, RefreshIntervals())["KV eDRAM, refresh"]
    assert found == pytest.approx(1.14 * cached_bytes(p) / (1 << 22), rel=1e-4)
    half = energies(p, replace(token, clock_mhz=500), RefreshIntervals(), 0.5)
    assert half["KV eDRAM, refresh"] == pytest.approx(found)


def test_refresh_follows_the_mean_interval() -> None:
    parts = [
        energies(generating(), ALL_SLOTS, own)["KV eDRAM, refresh"] for own in REFRESHES.values()
    ]
    assert parts[0] / parts[3] == pytest.approx(23.41, abs=0.01)
    assert parts[1] / parts[3] == pytest.approx(2.93, abs=0.005)
    assert parts[2] / parts[3] == pytest.approx(1, abs=1e-3)


def test_values_out_of_range() -> None:
    with pytest.raises(ValueError, match="cycles must be above 0, not 0"):
        replace(ALL_SLOTS, cycles=0)
    with pytest.raises(ValueError, match=r"share must be from 0 to 1, not 1\.5"):
        energies(generating(), ALL_SLOTS, RefreshIntervals(), 1.5)
