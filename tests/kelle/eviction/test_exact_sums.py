"""Importances of the accelerator compared with exact sums of the same scores."""

from dataclasses import replace

import pytest

from golden.kelle.eviction.exact_sums import agreement
from golden.llm import open_trace
from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters

pytestmark = pytest.mark.depends("kelle")

KELLE = entry_named("kelle")
SMOLLM2: KelleParameters = KELLE.parameters("smollm2")


def test_the_rule_ties_context_groups_shift_and_width() -> None:
    message = (
        "score_shift \\+ score_width must be at least 16 and the bits of "
        "prefill_tokens \\* group_size"
    )
    with pytest.raises(ValueError, match=f"{message}, 28, not 27"):
        replace(SMOLLM2, score_width=25)
    with pytest.raises(ValueError, match=f"{message}, 29, not 28"):
        replace(SMOLLM2, prefill_tokens=2048)
    for preset in KELLE.presets.values():
        evictor = preset.eviction.evictor
        # The most negative score from every query just fits.
        worst = preset.prefill_tokens * preset.group_size << 15 - evictor.shift
        assert worst <= 1 << evictor.score_width - 1


@pytest.mark.parametrize("layer", [0, 14, 29])
def test_smollm2_keeps_and_evicts_what_exact_sums_do(layer: int) -> None:
    found = agreement(SMOLLM2, open_trace(text="prose", tokens=640, layers=(layer,)), layer, 160)
    assert found.kept >= 0.99
    assert found.victims >= 0.95


def test_saturating_sums_are_detected() -> None:
    """With a declared context shorter than the text, sums may saturate."""
    narrow = replace(SMOLLM2, prefill_tokens=128, score_width=16, score_shift=9)
    found = agreement(narrow, open_trace(text="prose", tokens=640, layers=(14,)), 14, 160)
    assert found.victims < 0.9


@pytest.mark.full
@pytest.mark.parametrize("preset", ["smollm2", "paper"])
@pytest.mark.parametrize("layer", [14, 21])
def test_a_whole_context(preset: str, layer: int) -> None:
    p: KelleParameters = KELLE.parameters(preset)
    trace = open_trace(text="news", tokens=p.prefill_tokens, layers=(0, 14, 21, 29))
    found = agreement(p, trace, layer, p.prefill_tokens // 4)
    assert found.kept >= 0.99
    assert found.victims >= 0.95
