"""Test the model of the element-serial activation against float64, and its parameters."""

import re
from typing import Any

import numpy as np
import pytest

from golden.veda.functions.element_serial_activation import (
    activation,
    error_bound,
    exact_activation,
)
from hdl.veda.functions.element_serial_activation import ElementSerialActivationParameters
from testbenches.veda.functions.tb_element_serial_activation import real_operands

EVERY = np.arange(1 << 16).astype(np.uint16)
FINITE = EVERY[np.isfinite(EVERY.view(np.float16))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exp_stages": 1}, "exp_stages must be an integer from 2 to 7, not 1"),
        ({"step_stages": 0}, "step_stages must be an integer from 1 to 4, not 0"),
        ({"divide_digits": 14}, "divide_digits must be an integer from 0 to 13, not 14"),
        ({"divide_stages": 17}, "divide_stages must be an integer from 1 to 16, not 17"),
        ({"multiply_stages": True}, "multiply_stages must be an integer from 1 to 4, not True"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementSerialActivationParameters(**change)


@pytest.mark.parametrize("up", [0x3C00, 0xBC00, 0x4A55, 0x0001, 0x2E66, 0x6000])
def test_every_finite_gate_is_within_the_bound(up: int) -> None:
    ups = np.full(len(FINITE), up, np.uint16)
    exact = exact_activation(FINITE, ups)
    got = activation(FINITE, ups).view(np.float16).astype(np.float64)
    inside = np.abs(exact) < 65504
    error = np.abs(got - exact)[inside]
    assert np.all(error <= error_bound(FINITE, ups)[inside])
    assert np.all(np.isinf(got[np.abs(exact) > 65600]))


def test_special_gates() -> None:
    one = np.full(6, 0x3C00, np.uint16)
    gates = np.array([0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x0000, 0x8000], np.uint16)
    assert list(activation(gates, one)) == [0x7C00, 0x7E00, 0x7E00, 0x7E00, 0x0000, 0x8000]


def test_real_layers_are_near_float64() -> None:
    gate, up = real_operands(4)
    exact = exact_activation(gate, up)
    got = activation(gate, up).view(np.float16).astype(np.float64)
    assert np.all(np.abs(got - exact) <= error_bound(gate, up))
    assert np.abs(got - exact).max() < 2.0**-9 * np.abs(exact).max()
