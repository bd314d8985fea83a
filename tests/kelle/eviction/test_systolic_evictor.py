"""The evictor's model compared with Python and the policy; parameters; agreement of sources."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.kelle.eviction.aerp import replay
from golden.kelle.eviction.agreement import agreement
from golden.kelle.eviction.systolic_evictor import (
    SystolicEvictorModel,
    Wavefront,
    accumulate,
    quantise_scores,
)
from hdl.catalog import entry_named
from hdl.kelle.eviction.systolic_evictor import OnSaturation, ScoreSource, SystolicEvictorParameters
from hdl.paths import ROOT
from testbenches.kelle.eviction.evictor_wavefronts import policy_for, step_wavefronts, tabulate

ENTRY = entry_named("systolic_evictor")
PAGE = ROOT / "docs/kelle/eviction/systolic_evictor.md"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 12}, "rows must be a power of two between 2 and 64, not 12"),
        ({"rows": 128}, "rows must be a power of two between 2 and 64, not 128"),
        ({"slots": 4128}, "slots must be an integer from 32 to 4096, not 4128"),
        ({"slots": 100}, "slots must be a multiple of rows, not 100"),
        ({"index_width": 10}, "index_width must address 2048 slots, not 10"),
        ({"score_width": 3}, "score_width must be an integer from 4 to 32, not 3"),
        ({"score_width": 33}, "score_width must be an integer from 4 to 32, not 33"),
        ({"shift": 16}, "shift must be less than input_width = 16, not 16"),
        ({"shift": True}, "shift must be an integer from 0 to 31, not True"),
        ({"source": "raw"}, "source must be one of .*, not 'raw'"),
        ({"victims": 0}, "victims must be an integer from 1 to 16, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SystolicEvictorParameters(**change)


@given(
    st.integers(4, 24),
    st.integers(0, 15),
    st.lists(st.tuples(st.integers(-(2**23), 2**23 - 1), st.integers(-(2**15), 2**15 - 1))),
)
def test_accumulate_is_saturating_floor(
    width: int, shift: int, pairs: list[tuple[int, int]]
) -> None:
    p = SystolicEvictorParameters(score_width=width, shift=shift)
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    start = np.array([max(low, min(high, importance)) for importance, _ in pairs], np.int64)
    scores = np.array([score for _, score in pairs], np.int64)
    total, saturated = accumulate(start, scores, p)
    for i, (_, score) in enumerate(pairs):
        exact = int(start[i]) + score // 2**shift
        assert total[i] == max(low, min(high, exact))
        assert saturated[i] == (not low <= exact <= high)


def test_scores_are_rounded_to_even_and_saturated() -> None:
    raw = SystolicEvictorParameters()
    values = [0.5 / 1024, 1.5 / 1024, -0.5 / 1024, 31.9999, 40.0, -40.0]
    assert quantise_scores(np.array(values), raw).tolist() == [0, 2, 0, 32767, 32767, -32768]
    prob = SystolicEvictorParameters(source=ScoreSource.PROB)
    assert quantise_scores(np.array([0.0, 0.5, 1.0]), prob).tolist() == [0, 32768, 65535]


@pytest.mark.parametrize("preset", list(ENTRY.presets))
def test_wavefronts_and_policy_choose_the_same_victims(preset: str) -> None:
    """The independent models of the hardware and of the algorithm agree."""
    p = ENTRY.parameters(preset)
    rng = np.random.default_rng(3)
    tokens = min(p.slots, 256) + 40
    if p.slots > 256:
        p = SystolicEvictorParameters(slots=256)
    scores = rng.normal(scale=8.0, size=(3, tokens, tokens))
    first = p.slots - 5
    steps = list(replay(scores, policy_for(p), first=first, steps=40, source=p.source, evictor=p))
    table = tabulate((wavefront for step in steps for wavefront in step_wavefronts(step, p)), p)
    assert [victim.index for victim in table.victims] == [step.victim for step in steps]
    assert len({victim.index for victim in table.victims}) > 2


def test_saturation_halves_the_next_step() -> None:
    p = SystolicEvictorParameters(
        rows=2,
        slots=2,
        index_width=1,
        score_width=4,
        shift=8,
        on_saturation=OnSaturation.HALVE,
    )
    model = SystolicEvictorModel(p)

    def search(importance: list[int], scores: list[int], halve: bool) -> tuple[list[int], Any]:
        column, victim = model.process(
            Wavefront(
                load=True,
                compare=True,
                last=True,
                halve=halve,
                scores=np.array(scores) << 8,
                importance=np.array(importance),
                valid=np.ones(2, bool),
                protect=np.zeros(2, bool),
            )
        )
        return column.tolist(), victim

    column, victim = search([6, 2], [5, 0], False)
    assert column == [7, 2] and victim.saturated
    column, victim = search(column, [1, 1], victim.saturated)
    assert column == [4, 2] and not victim.saturated


def test_documented_agreement_of_raw_and_probability_scores() -> None:
    """The unit's page contains the output of the command that it names."""
    measured = agreement()
    page = PAGE.read_text()
    for line in measured.lines():
        assert line in page
