"""The composed design by hand, with numbers of the page instead of the module's formulas."""

from typing import Any

import pytest

from hdl.catalog import entry_named
from hdl.paths import ROOT
from synth import comparison
from synth.composed import AS_COMPARED, COMPOSED, DESIGNS
from synth.normalised import area_mm2, speed_per_area

DATA = comparison.kept()
VEDA = DATA["systems"]["veda"]
PAGE = " ".join((ROOT / "docs" / "composed.md").read_text().split())


def test_an_unchanged_design_is_veda() -> None:
    figures = VEDA["figures"]
    assert AS_COMPARED.cycles(VEDA) == figures["cycles"]
    assert AS_COMPARED.bytes_per_token(VEDA) == figures["bytes_per_token"]
    area = AS_COMPARED.logic_mm2(VEDA) + AS_COMPARED.memory_mm2(VEDA)
    assert area == pytest.approx(area_mm2(VEDA))
    assert AS_COMPARED.per_mm2(VEDA) == pytest.approx(speed_per_area(VEDA, 64.0))


def test_the_composed_design_by_hand() -> None:
    # 1,118,770 + 1,087,134 + 6,840 cycles; 529,920 bytes are no weights.
    assert COMPOSED.cycles(VEDA) == 2_212_744
    assert COMPOSED.bytes_per_token(VEDA) == 138_903_552 + 529_920 + 482_304
    assert COMPOSED.speed(VEDA) == pytest.approx(949.34e6 / 2_212_744)
    # 673,281.644 - 281,455.5 + 64 x 409 + 1,825 um2; 133,176 bits.
    assert COMPOSED.logic_mm2(VEDA) == pytest.approx(0.419827, abs=1e-6)
    assert COMPOSED.memory_mm2(VEDA) == pytest.approx(133_176 * 0.569396e-6, rel=1e-5)
    # 34.2406 x 1.001867 x 1.002865.
    assert COMPOSED.perplexity(VEDA, "perplexity") == pytest.approx(34.4028, abs=1e-3)


def test_the_conclusions_of_the_page_follow_from_the_tables() -> None:
    float32 = DATA["systems"]["float32"]["figures"]["perplexity"]
    for cached in ("perplexity", "perplexity_128"):
        assert COMPOSED.perplexity(VEDA, cached) < 1.05 * float32
    assert "perplexity of 34.40, or of 35.07 with at most 128 of 256" in PAGE
    assert f"at most {1.05 * float32:.2f}, as float32 has {float32:.2f}" in PAGE
    per_mm2 = {design.name: design.per_mm2(VEDA) for design in DESIGNS}
    assert max(per_mm2, key=lambda name: per_mm2[name]) == COMPOSED.name
    p3llm = DATA["systems"]["p3llm"]
    rival = 500e6 / p3llm["figures"]["cycles"] / area_mm2(p3llm)
    own, veda = per_mm2[COMPOSED.name], per_mm2[AS_COMPARED.name]
    assert f"{own / veda:.1f} times VEDA and {own / rival:.1f} times P3-LLM per mm2" in PAGE
    smaller = per_mm2["a prompt token by token, 64 elements"]
    assert f"VEDA alone has {smaller:.0f}, which is {smaller / veda:.1f} times its figure" in PAGE
    assert f"8-bit weights give the last {own / smaller:.2f} times" in PAGE
    assert f"has {per_mm2['8-bit weights']:.0f}, which cannot be distinguished" in PAGE


def test_constants_are_on_the_pages_that_the_module_names() -> None:
    for page, texts in {
        "veda/veda.md": ("5,184 for queries", "2,880 for the output", "13,824 for", "6,912 for",
                         "1,179,648", "147,456", "81,920", "196,608", "| 228 | folds"),
        "figures.md": ("562,911", "47,509"),
        "arith/floating_point.md": ("409, 570 ps", "1,825, 574 ps"),
        "meadow/meadow.md": ("ratio of 1.38",),
        "meadow/options.md": ("| 1.279 |", "at most 256"),
        "meadow/study.md": ("one scale per channel | 26.83 |", "| float | 26.78 |"),
        "generate.md": ("28.00 instead of 27.92",),
    }.items():  # fmt: skip
        text = " ".join((ROOT / "docs" / page).read_text().split())
        assert not [one for one in texts if one not in text], page


def test_the_parameters_of_the_design_are_legal() -> None:
    settings = {"array.planes": "1", "block": "1"}
    chosen: Any = entry_named("veda").dimensions("smollm2_vocabulary", settings)
    p = entry_named("veda").parameters(chosen) if isinstance(chosen, str) else chosen
    assert p.array.rows * p.array.columns * p.array.planes == 64 and p.block == 1
    assert "VEDA's parameters accept `array.planes=1` and `block=1`" in PAGE
