"""Test the model of the element-serial rotary embedding against float64 and SmolLM2 itself."""

import re
from typing import Any

import numpy as np
import pytest

from golden.llm import open_trace
from golden.llm.model import SMOLLM2
from golden.veda.functions.element_serial_rotary import (
    angles,
    error_bounds,
    exact_rotary,
    rotary,
    values,
)
from hdl.veda.functions.element_serial_rotary import ElementSerialRotaryParameters
from testbenches.veda.functions.tb_element_serial_rotary import random_pairs, real_pairs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multiply_stages": 0}, "multiply_stages must be an integer from 1 to 4, not 0"),
        ({"add_stages": 5}, "add_stages must be an integer from 1 to 4, not 5"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementSerialRotaryParameters(**change)


def test_random_pairs_are_within_the_bound() -> None:
    pairs = random_pairs(np.random.default_rng(8), 20000)
    finite = np.all([np.abs(values(part)) < 30000 for part in pairs], axis=0)
    x, y, cosine, sine = (part[finite] for part in pairs)
    assert len(x) > 10000
    got, exact = rotary(x, y, cosine, sine), exact_rotary(x, y, cosine, sine)
    for result, truth, bound in zip(got, exact, error_bounds(x, y, cosine, sine), strict=True):
        assert np.all(np.abs(values(result) - truth) <= bound)


def test_position_zero_changes_nothing() -> None:
    cosine, sine = angles(1, 64, SMOLLM2.rope_base)
    x = np.arange(0x3000, 0x3020).astype(np.uint16)
    turned_x, turned_y = rotary(x, x[::-1], cosine[0], sine[0])
    assert np.array_equal(turned_x, x) and np.array_equal(turned_y, x[::-1])


def test_real_heads_equal_those_of_the_language_model() -> None:
    """Compare with the queries of SmolLM2 before and after its own rotary embedding."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    attention = trace.attention_trace(14, 3)
    codes = attention.q_before_rope.astype(np.float16).view(np.uint16)
    cosine, sine = angles(640, trace.head_size, SMOLLM2.rope_base)
    x, y = rotary(codes[:, :32], codes[:, 32:], cosine, sine)
    turned = np.concatenate([values(x), values(y)], axis=1)
    size = np.hypot(attention.q[:, :32], attention.q[:, 32:])
    error = np.abs(turned - attention.q)
    assert np.all(error <= 2.0**-9 * np.concatenate([size, size], axis=1) + 2.0**-23)


def test_real_pairs_are_within_the_bound() -> None:
    pairs = real_pairs(8)
    for result, truth, bound in zip(
        rotary(*pairs), exact_rotary(*pairs), error_bounds(*pairs), strict=True
    ):
        assert np.all(np.abs(values(result) - truth) <= bound)
