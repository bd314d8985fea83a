"""Linear layers: the model against float64, its order of additions, SmolLM2's matrices."""

import re
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.linear.linear_module import exact_linear, linear, sliced
from golden.llm import open_trace
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.lad.linear.linear_module import LinearModule, LinearModuleParameters
from testbenches.lad.vectors import LAYERS, TOKENS
from testbenches.lint import lint_unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": 1}, "units must be an integer from 2 to 16, not 1"),
        ({"samples": 65}, "samples must be an integer from 1 to 64, not 65"),
        ({"slices": 0}, "slices must be an integer from 1 to 256, not 0"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LinearModuleParameters(**change)


def test_vector_units_can_be_outside() -> None:
    p = entry_named("linear_module").parameters("tiny")
    emission = Emission(top=LinearModule(parameters=p, shared=True), name="shared")
    assert any(port.name.startswith("units_2_") for port in emission.modules[-1].ports)
    assert not lint_unit("shared", emission)


def test_a_last_slice_is_filled_with_zeros() -> None:
    parts = sliced(np.arange(1, 8).reshape(1, 7), 4)
    assert parts.tolist() == [[[1, 2, 3, 4], [5, 6, 7, 0]]]


def test_slices_are_added_one_after_the_other() -> None:
    """65504 + 32 - 65504: the sum of the first two slices rounds up to infinity."""
    weights = codes(np.ones((1, 3)))
    inputs = codes(np.array([[65504.0, 32.0, -65504.0], [65504.0, -65504.0, 32.0]]))
    assert values(linear(weights, inputs, head_size=1)).tolist() == [[np.inf], [32.0]]
    # Within a slice adjacent pairs are added first.
    inputs = codes(np.array([[65504.0, -65504.0, 32.0]]))
    assert values(linear(weights, inputs, head_size=3)).tolist() == [[32.0]]


@pytest.mark.parametrize(
    ("name", "head_size"), [("q_proj", 64), ("q_proj", 128), ("down_proj", 64)]
)
def test_projections_are_float64_s(name: str, head_size: int) -> None:
    """SmolLM2's width of 576 is no multiple of 128; each sum has its own roundings."""
    layer = open_trace(text="prose", tokens=TOKENS, layers=LAYERS).linear(LAYERS[1], name)
    weights, inputs = codes(layer.weight[:70]), codes(layer.inputs[:6])
    got = values(linear(weights, inputs, head_size=head_size))
    size = np.abs(values(inputs)) @ np.abs(values(weights)).T
    roundings = weights.shape[1] // head_size + head_size.bit_length() + 2
    assert np.all(np.abs(got - exact_linear(weights, inputs)) <= roundings * 2.0**-11 * size)
