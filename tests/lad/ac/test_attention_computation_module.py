"""AC module: the model against float64, corrections against right modes, parameters."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.arith.float_round import encode
from golden.arith.float_values import values
from golden.lad.ac.attention_computation_module import (
    Corrections,
    attention,
    exact_attention,
    parts,
)
from hdl.arith.float_format import BINARY16, BINARY32, FloatFormat
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from testbenches.lad.ac.tb_attention_computation_module import random_steps, real_steps
from testbenches.lint import lint_unit


def parameters(cache_format: FloatFormat) -> AttentionComputationModuleParameters:
    smollm2 = entry_named("attention_computation_module").parameters("smollm2")
    return AttentionComputationModuleParameters(vector=smollm2.vector, cache_format=cache_format)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 2}, "lanes must be an integer from 3 to 3, not 2"),
        ({"updates": 1}, "updates must be an integer from 2 to 4096, not 1"),
        ({"cache_format": 16}, "cache_format must be one of"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AttentionComputationModuleParameters(**change)


def test_vector_units_can_be_outside() -> None:
    p = entry_named("attention_computation_module").parameters("tiny")
    emission = Emission(top=AttentionComputationModule(parameters=p, shared=True), name="shared")
    assert any(port.name.startswith("units_2_") for port in emission.modules[-1].ports)
    assert not lint_unit("shared", emission)


@pytest.mark.parametrize("cache_format", [BINARY16, BINARY32], ids=["binary16", "binary32"])
def test_real_steps_are_near_float64(cache_format: FloatFormat) -> None:
    """Outputs are within 3 % of the largest value, updated caches within their roundings."""
    p = parameters(cache_format)
    for step in real_steps(p, 6, 60, 4):
        got = step.answer(p)
        before = cache_format.decode(step.caches)
        exact, denominator, after = exact_attention(
            before, step.query, step.maximum, step.corrections
        )
        assert denominator > 0 and not got.not_positive
        error = np.abs(values(got.output) - exact).max() / np.abs(exact).max()
        assert error < 0.03
        changed = np.abs(after - before)
        wrong = np.abs(cache_format.decode(got.caches) - after)
        steps = 4 * 2.0 ** -(cache_format.mantissa_bits + 1)
        bound = 2.0**-9 * changed.max() + steps * np.abs(before).max() + 2.0**-22
        assert wrong.max() <= bound


def test_corrections_make_up_for_wrong_modes() -> None:
    """Right modes without corrections and wrong modes with corrections have the same result."""
    p = parameters(BINARY32)
    for wrong in real_steps(p, 3, 60, 0):
        before = BINARY32.decode(wrong.caches)
        moved = Corrections(
            wrong.corrections.alpha_score,
            wrong.corrections.alpha,
            wrong.corrections.beta,
            np.ones(len(wrong.corrections.alpha), bool),
            wrong.corrections.keys,
            wrong.corrections.values,
        )
        exact, _, right = exact_attention(before, wrong.query, wrong.maximum, moved)
        none = Corrections(*(part[:0] for part in vars(moved).values()))
        plain, _, _ = exact_attention(right, wrong.query, wrong.maximum, none)
        assert np.abs(exact - plain).max() < 2.0**-8 * np.abs(exact).max()


def test_opposite_updates_restore_caches() -> None:
    """The same position with opposite coefficients restores FP32 caches."""
    p = parameters(BINARY32)
    rng = np.random.default_rng(2)
    step = random_steps(p, rng)[2]
    one = step.corrections
    there = Corrections(*(np.concatenate([part, part]) for part in vars(one).values()))
    there.update[:] = False
    there.update[[0, len(one.alpha)]] = True
    for part in (there.alpha, there.beta):
        part[len(one.alpha) :] ^= 0x8000
    got = attention(
        step.caches,
        step.query,
        step.maximum,
        there,
        cache_format=BINARY32,
        lanes=3,
        interleaved=3,
        updates=16,
    )
    before = BINARY32.decode(step.caches)
    assert np.abs(BINARY32.decode(got.caches) - before).max() < 2.0**-18


def test_part_ends_before_a_transfer_without_room() -> None:
    """Lane 1 of the third transfer has no room for its third position."""
    step = random_steps(parameters(BINARY32), np.random.default_rng(3))[3]
    update = np.array([1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1], bool)
    indices = np.arange(len(update)) % len(step.corrections.alpha)
    one = Corrections(*(part[indices] for part in vars(step.corrections).values()))
    one.update[:] = update
    assert [len(part.alpha) for part in parts(one, 3, 2)] == [6, 7]
    assert [len(part.alpha) for part in parts(one, 3, 3)] == [13]


@pytest.mark.parametrize("updates", [2, 3, 16])
def test_parts_of_a_step_are_near_float64(updates: int) -> None:
    """Every position updates the caches, which are written once per part."""
    p = parameters(BINARY32)
    for step in real_steps(p, 3, 60, 60):
        before = BINARY32.decode(step.caches)
        exact, _, after = exact_attention(before, step.query, step.maximum, step.corrections)
        got = step.answer(replace(p, updates=updates))
        assert np.abs(values(got.output) - exact).max() < 0.03 * np.abs(exact).max()
        assert np.abs(BINARY32.decode(got.caches) - after).max() < 2.0**-9 * np.abs(after).max()


def test_denominator_of_zero_sets_flag() -> None:
    p = parameters(BINARY32)
    step = real_steps(p, 1, 3, 0)[0]
    caches = step.caches.copy()
    for last, flagged in ((-1.0, True), (1.0, False)):
        caches[-1] = encode(BINARY32, np.zeros(66))
        caches[-1, -1:] = encode(BINARY32, np.array([last]))
        got = attention(
            caches,
            step.query,
            0,
            Corrections(*(part[:0] for part in vars(step.corrections).values())),
            cache_format=BINARY32,
            lanes=3,
            interleaved=3,
            updates=16,
        )
        assert got.not_positive is flagged
