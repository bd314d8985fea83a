"""Whatever a parameter object accepts is emitted, lints clean, and passes its testbench."""

import random
from typing import Any

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.paths import BUILD
from hdl.settings import with_values
from testbenches.draws import draw
from testbenches.lint import faulty_blocks
from testbenches.quick_form import COMPOSED, quick_form
from testbenches.runner import Request, simulate
from tests.verilog_rules import broken_rules

UNITS = pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)

SEEDS, COMPOSED_SEEDS = 6, 3
"""Number of random parameter sets of one unit, and of one that is composed of others.

One set of a composed unit takes as long as those of all its parts, which have their own.
"""

SIMULATED = (
    "rotary_embedding",
    "kv_edram",
    "eviction_controller",
    "prefill_selector",
    "systolic_evictor",
    "refresh_controller",
    "element_serial_rotary",
    "special_function_unit",
    "voting_engine",
    "bank_timing",
    "probability_quantiser",
    "half_lanes",
    "mode_aware_unpacker",
    "slice_walk",
    "sum_slices",
)
"""Units that compile in seconds; the full suite tests all."""

LONG_WALKS = 25
"""Number of random parameter sets of one unit whose rejections are checked."""

ONCE_WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    # An eDRAM row is a whole key of the only head: its values arrive while keys are rotated.
    "kelle-wide-words": ("kelle", {"bands": 2, "word_bytes": 4, "heads": 4, "vectors": 2}),
    "kelle-wide-rows": (
        "kelle",
        {"rows": 8, "bands": 4, "word_bytes": 4, "head_size": 16, "slots": 16}
        | {"heads": 4, "vectors": 2},
    ),
    # The bench took entries of a second layer's slots for those of vectors.
    "eviction-controller-layers": ("eviction_controller", {"layers": 3}),
    # The victim's vector was freed so late that the search had passed the popular token's slots.
    "eviction-controller-late-decision": (
        "eviction_controller",
        {"kv_heads": 1, "vectors": 6, "vector_entries": 4, "popular_above": 0},
    ),
    "kelle-many-queries": ("kelle", {"heads": 8, "vectors": 6, "score_width": 18, "words": 256}),
    # The text of the bench had more tokens than positions.
    "kelle-few-positions": ("kelle", {"context_length": 32}),
    # Two and one layers, where the bench used three.
    "veda-two-layers": (
        "veda",
        {"copies": 1, "array.rows": 4, "array.columns": 2, "head_size": 16, "vocabulary_size": 0}
        | {"heads": 4, "kv_heads": 2, "hidden_size": 7, "intermediate_size": 16, "block": 7}
        | {"slots": 32, "layers": 2},
    ),
    "veda-one-of-each": (
        "veda",
        {"copies": 1, "slots": 4, "context_length": 4, "layers": 1, "heads": 1, "kv_heads": 1}
        | {"hidden_size": 2, "block": 4, "scored_heads": 1, "vocabulary_size": 2},
    ),
    "veda-as-many-slots-as-positions": (
        "veda",
        {"copies": 1, "head_size": 8, "heads": 8, "kv_heads": 2, "hidden_size": 31}
        | {
            "intermediate_size": 8,
            "block": 16,
            "slots": 64,
            "scored_heads": 8,
            "vocabulary_size": 0,
        }
        | {"array.partial_sums": 2},
    ),
    # The second vector was in the pipeline before the pairs arrived.
    "special-function-unit-short-vectors": ("special_function_unit", {"width": 2, "vectors": 4}),
    # The text of the bench evicted protected tokens.
    "voting-engine-protected-slots": (
        "voting_engine",
        {"threshold.slots": 11, "reserved": 8, "protect_sink": True},
    ),
    # A score of two units had more bits than the input.
    "prefill-selector-narrow-scores": (
        "prefill_selector",
        {"eviction.evictor.input_width": 4, "eviction.evictor.shift": 3},
    ),
    # The bench waited for more weights than two heads of the first linear layer have.
    "hybrid-tile-short-first-head": (
        "hybrid_tile",
        {"lanes": 6, "slices": 4, "slice_words": 4, "slots": 2, "tokens": 1, "heads": 8}
        | {"lane_words": 4, "rotary": False, "biases": True, "element.multipliers": 8},
    ),
    # Waiting offsets blocked the classes that follow them in the stream.
    "mode-aware-unpacker-few-classes-per-packet": (
        "mode_aware_unpacker",
        {"lanes": 7, "packet_bits": 64, "id_bits": 9, "classes": True},
    ),
}
"""Legal parameters that failed once: unit, and changes to the last tiny preset."""

COMBINED: dict[str, dict[str, Any]] = {
    "keys-before-rotation-of-a-batch-on-two-channels": {
        "pre_rope": True,
        "batch": 3,
        "pseudo_channels": 2,
    },
    "five-heads-on-four-channels": {"heads": 10, "kv_heads": 5, "pseudo_channels": 4},
    "one-token-in-the-vocabulary": {"vocabulary_size": 1},
    "two-tokens-of-8-bits-for-a-batch": {"vocabulary_size": 2, "vocabulary_bits": 8, "batch": 2},
    "heads-of-8-elements": {"head_size": 8, "pre_rope": True, "vocabulary_bits": 8},
}
"""Options of P3-LLM that no preset combines: changes to its preset `tiny`."""


DRAWN = [
    pytest.param(
        entry,
        seed,
        id=f"{entry.top}-{seed}",
        marks=[] if entry.top in SIMULATED and seed == 0 else [pytest.mark.full],
    )
    for entry in CATALOG
    for seed in range(COMPOSED_SEEDS if entry.top in COMPOSED else SEEDS)
]


FAILED_ONCE = [
    pytest.param(name, marks=[] if top in SIMULATED else [pytest.mark.full])
    for name, (top, _changes) in ONCE_WRONG.items()
]


@UNITS
def test_refusals_have_clear_messages(entry: Entry) -> None:
    found = set()
    for seed in range(LONG_WALKS):
        parameters, refusals = draw(entry, random.Random(seed))
        found.add(parameters)
        for refusal in refusals:
            assert " must " in refusal and ", not " in refusal
    # A unit whose only parameter is its lanes has four of them that are not large.
    assert len(found) > 3


@pytest.mark.parametrize(("entry", "seed"), DRAWN)
def test_random_parameters_are_lint_clean_and_equal_the_golden_model(
    entry: Entry, seed: int
) -> None:
    parameters, _refusals = draw(entry, random.Random(seed))
    form = quick_form(entry.top, "tiny")
    result = simulate(entry, parameters, Request(seed=seed, target=form, lint=True))
    assert result.passed, f"{parameters}: {result.first_failure}"
    assert result.values_checked > 0
    name, _parameters = entry.named(parameters)
    for file in (BUILD / entry.top / name / form.folder).glob("*.v"):
        text = file.read_text()
        assert not [*broken_rules(text), *faulty_blocks(text)], f"{parameters}: {file.name}"


@pytest.mark.parametrize("name", FAILED_ONCE)
def test_what_failed_once_passes(name: str) -> None:
    top, changes = ONCE_WRONG[name]
    entry = entry_named(top)
    small = [preset for preset in entry.presets if preset.startswith("tiny")][-1]
    require_equal(entry, with_values(entry.parameters(small), changes))


@pytest.mark.full
@pytest.mark.parametrize("name", COMBINED)
def test_combined_options_of_p3llm_pass(name: str) -> None:
    entry = entry_named("p3llm")
    require_equal(entry, with_values(entry.parameters("tiny"), COMBINED[name]))


def require_equal(entry: Entry, parameters: Any) -> None:
    """Simulate a unit, which must equal its golden model."""
    request = Request(seed=1, target=quick_form(entry.top, "tiny"))
    result = simulate(entry, parameters, request)
    assert result.passed, result.first_failure
