"""Test VEDA's parameters, its addresses, and its model against float64."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.veda.veda import LayerModel, exact_attention, lane_rows
from hdl.catalog import entry_named
from hdl.veda.array.flexible_pe_array import FlexiblePeArrayParameters
from hdl.veda.veda import VedaParameters
from testbenches.veda.decode_work import real_tokens

ENTRY = entry_named("veda")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copies": 0}, "copies must be an integer from 1 to 8, not 0"),
        ({"head_size": 96}, "head_size must be the array's width 128 or a plane's 64, not 96"),
        ({"heads": 0}, "heads must be an integer from 1 to 128, not 0"),
        ({"kv_heads": 33}, "kv_heads must be an integer from 1 to 32, not 33"),
        ({"kv_heads": 5}, "kv_heads must divide heads = 32, not 5"),
        ({"layers": 0}, "layers must be an integer from 1 to 256, not 0"),
        ({"slots": 3000}, "slots must be a power of two between 4 and 4096, not 3000"),
        ({"slots": 8192}, "slots must be a power of two between 4 and 4096, not 8192"),
        ({"context_length": 2048}, "slots must be at most context_length = 2048, not 4096"),
        ({"block": 65}, "block must be an integer from 1 to 64, not 65"),
        ({"block": 9, "slots": 8}, "block must be at most slots = 8, not 9"),
        ({"scored_heads": 0}, "scored_heads must be an integer from 1 to 64, not 0"),
        ({"hidden_size": 1}, "hidden_size must be an integer from 2 to 65536, not 1"),
        (
            {"copies": 3, "hidden_size": 64, "intermediate_size": 384},
            "hidden_size must be a multiple of copies 3, not 64",
        ),
        (
            {"intermediate_size": 100},
            "intermediate_size must be a multiple of all arrays' width 128, not 100",
        ),
        (
            {"hidden_size": 65536, "block": 64},
            "elements of a block's hidden states must be at most 1048576, not 4194304",
        ),
        (
            {
                "array": FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=1024),
                "head_size": 8,
                "intermediate_size": 65536,
                "block": 2,
            },
            "lines of a block's weights must be at most 1048576, not 8388608",
        ),
        ({"context_length": 3}, "context_length must be a power of two between 2 and 65536, not 3"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        VedaParameters(**change)


@pytest.mark.parametrize("preset", list(ENTRY.presets))
def test_every_head_has_its_lane(preset: str) -> None:
    """Each head occurs once; its channels read its own keys; no round is superfluous."""
    p = ENTRY.parameters(preset)
    members = p.heads // p.kv_heads
    seen = []
    for turn in range(p.rounds):
        for channel in range(0, p.channels, p.vector_lines):
            head = p.lane(turn, channel)
            seen.append(head)
            assert p.kv_head(turn, channel) == min(head, p.heads - 1) // members
            for part in range(p.vector_lines):
                assert p.lane(turn, channel + part) == head
    assert seen == list(range(p.rounds * p.lanes))
    assert (p.rounds - 1) * p.lanes < p.heads <= p.rounds * p.lanes


@pytest.mark.parametrize("preset", ["smollm2", "paper"])
def test_units_have_the_accelerators_presets(preset: str) -> None:
    """One configuration has one figure: area, clock and share of a unit use the same presets."""
    p = ENTRY.parameters(preset)
    assert entry_named("special_function_unit").parameters(preset) == p.functions
    assert entry_named("flexible_pe_array").parameters(preset) == p.array
    engine = entry_named("voting_engine").parameters(preset)
    assert replace(engine, reserved=0) == p.voting


def test_lanes_without_a_head_are_zero() -> None:
    p = VedaParameters(head_size=64, heads=9, kv_heads=3)
    rows = lane_rows(np.arange(1, 10 * 64 - 63).reshape(9, 64).astype(np.uint16), p)
    assert rows.shape == (5, 128)
    assert rows[4, 63] == 9 * 64 and not rows[4, 64:].any()


@pytest.mark.parametrize(("preset", "cached"), [("tiny", 12), ("tiny_wide", 9), ("smollm2", 60)])
def test_model_is_near_the_truth(preset: str, cached: int) -> None:
    p = ENTRY.parameters(preset)
    tokens = real_tokens(p, 14)
    model = LayerModel(p)
    model.fill(tokens.keys[:cached].swapaxes(0, 1), tokens.values[:cached].swapaxes(0, 1))
    for index in range(cached, cached + 3):
        step = model.attend(tokens.queries[index], tokens.keys[index], tokens.values[index])
        now = slice(0, index + 1)
        past = (tokens.keys[now].swapaxes(0, 1), tokens.values[now].swapaxes(0, 1))
        real = (array.view(np.float16).astype(np.float64) for array in past)
        query = tokens.queries[index].view(np.float16).astype(np.float64)
        truth, bound = exact_attention(query, *real)
        got = step.outputs.view(np.float16).astype(np.float64).reshape(-1, p.head_size)[: p.heads]
        assert (abs(got - truth) <= bound).all()
        # The bound is useful: it is small relative to the values.
        assert bound.max() < 0.05 * abs(truth).max()
        total = step.probabilities.view(np.float16).astype(np.float64).sum(axis=1)
        assert abs(total - 1).max() < 0.01


def test_a_token_without_a_slot_takes_the_last() -> None:
    p = ENTRY.parameters("tiny")
    model = LayerModel(p, length=p.slots - 1)
    rng = np.random.default_rng(0)
    for _ in range(3):
        query, key, value = (
            rng.normal(size=(heads, p.head_size)).astype(np.float16).view(np.uint16)
            for heads in (p.heads, p.kv_heads, p.kv_heads)
        )
        step = model.attend(query, key, value)
        assert (step.slot, step.length) == (p.slots - 1, p.slots)


def test_arrays_on_other_heads_give_the_same_outputs() -> None:
    """Two copies of the array compute the same outputs as one."""
    array = FlexiblePeArrayParameters(rows=2, columns=2)
    one = VedaParameters(array=array, head_size=4, heads=5, kv_heads=5, slots=16)
    two = VedaParameters(array=array, head_size=4, heads=5, kv_heads=5, slots=16, copies=2)
    tokens = real_tokens(one, 14)
    outputs = []
    for p in (one, two):
        model = LayerModel(p)
        model.fill(tokens.keys[:8].swapaxes(0, 1), tokens.values[:8].swapaxes(0, 1))
        step = model.attend(tokens.queries[8], tokens.keys[8], tokens.values[8])
        outputs.append(step.outputs.reshape(-1, 4)[:5])
    assert np.array_equal(*outputs)
