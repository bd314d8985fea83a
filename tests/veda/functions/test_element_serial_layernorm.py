"""Test the model of the element-serial layernorm against float64, and its parameters."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.llm import open_trace
from golden.veda.functions.element_serial_layernorm import (
    EPSILON,
    error_bound,
    exact_layernorm,
    layernorm,
    mean_code,
    scale_code,
    sums,
)
from hdl.catalog import entry_named
from hdl.veda.functions.deviation_reciprocal import DeviationReciprocal
from hdl.veda.functions.element_serial_layernorm import ElementSerialLayernormParameters
from hdl.veda.functions.layernorm_parameters import EPSILON as HARDWARE_EPSILON
from testbenches.veda.functions.tb_element_serial_layernorm import (
    codes,
    edge_vectors,
    random_vectors,
    undefined_vectors,
)

ROOT_MEAN_SQUARE = ElementSerialLayernormParameters()
MEAN = ElementSerialLayernormParameters(rms=False)


def within_bound(vector: np.ndarray, p: ElementSerialLayernormParameters) -> bool:
    got = layernorm(vector, p).view(np.float16).astype(np.float64)
    error = np.abs(got - exact_layernorm(vector, rms=p.rms))
    return bool(np.all(error <= error_bound(vector, rms=p.rms)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 1}, "width must be an integer from 2 to 65536, not 1"),
        ({"rms": 2}, "rms must be one of False, True, not 2"),
        ({"vectors": 0}, "vectors must be an integer from 1 to 16, not 0"),
        ({"subtract_stages": 0}, "subtract_stages must be an integer from 1 to 4, not 0"),
        ({"multiply_stages": 5}, "multiply_stages must be an integer from 1 to 4, not 5"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementSerialLayernormParameters(**change)


def test_epsilon_is_equal_in_model_and_hardware() -> None:
    assert HARDWARE_EPSILON == EPSILON


@given(st.lists(st.integers(0, 0xFBFF).filter(lambda code: code & 0x7C00 != 0x7C00), min_size=1))
def test_sums_are_exact_but_for_the_squares_last_bits(vector: list[int]) -> None:
    array = np.array(vector, np.uint16)
    exact = array.view(np.float16).astype(np.float64)
    total, squares = sums(array)
    assert total == sum(int(value * 2**24) for value in exact)
    whole = sum(int(value * 2**24) ** 2 for value in exact)
    assert 0 <= whole - (squares << 20) < len(vector) << 20


@given(st.integers(0, (1 << 60) - 1))
def test_scale_is_within_a_unit_of_the_last_place(variance: int) -> None:
    exact = 1 / np.sqrt((variance + EPSILON) / 2.0**28)
    got = float(np.uint16(scale_code(variance)).view(np.float16))
    assert abs(got - exact) <= max(exact * 2.0**-11, 2.0**-25) * 1.07


@given(st.integers(0, 65504 << 24), st.booleans())
def test_mean_is_rounded_once(magnitude: int, negative: bool) -> None:
    got = np.uint16(mean_code(magnitude, negative=negative)).view(np.float16)
    exact = np.float16(magnitude / 2.0**24)
    assert got == (-exact if negative else exact)


@pytest.mark.parametrize("p", [ROOT_MEAN_SQUARE, MEAN], ids=["rms", "mean"])
def test_edges_and_random_vectors_are_within_the_bound(
    p: ElementSerialLayernormParameters,
) -> None:
    vectors = edge_vectors(p) + random_vectors(np.random.default_rng(4), p, 60)
    for vector in vectors:
        assert within_bound(vector, p)


def test_undefined_vectors_give_nan_only() -> None:
    for vector in undefined_vectors(MEAN):
        assert set(layernorm(vector, MEAN)) == {0x7E00}


def test_real_hidden_states_are_near_float64() -> None:
    """RMSNorm of SmolLM2's hidden states at width 576."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = entry_named("element_serial_layernorm").parameters("smollm2")
    for layer in trace.layers:
        for token in (0, 1, 100, 639):
            assert within_bound(codes(trace.hidden(layer)[0][token]), p)


def test_serial_steps_are_shorter_than_a_vector_of_smollm2() -> None:
    """The serial steps take fewer cycles than the next vector."""
    assert DeviationReciprocal.cycles(ElementSerialLayernormParameters(width=576)) < 576
    assert DeviationReciprocal.cycles(ElementSerialLayernormParameters(rms=False)) < 576
