"""SFM: the model against float64 and against SmolLM2 itself."""

import re
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.sfm.special_function_module import (
    exact_norm,
    exact_rotary,
    exact_silu,
    norm,
    rotary,
    silu,
)
from golden.llm import open_trace
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from testbenches.lad.sfm.tb_special_function_module import angles, fitted
from testbenches.lad.vectors import LAYERS, TOKENS, head_vectors

EPSILON = codes(1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": VectorProcessingUnitParameters(head_size=5)}, "head_size must be even, not 5"),
        ({"hidden_size": 576}, "hidden_size must be a multiple of head_size, not 576"),
        ({"lanes": 3}, "lanes must be a divisor of head_size, not 3"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SpecialFunctionModuleParameters(**change)


def norm_errors(row: Any, weight: Any, bias: Any, *, rms: bool) -> np.ndarray:
    """Return errors relative to the row's largest result, the unit of the roundings."""
    epsilon = np.full(row.shape[:-1], EPSILON)
    got = values(norm(row, weight, bias, epsilon, head_size=64, rms=rms))
    exact = exact_norm(row, weight, bias, epsilon, rms=rms)
    size = np.abs(exact) + (0 if rms else np.abs(values(bias)))
    spread = np.abs(values(weight)) * (1 + np.abs(exact_norm(row, codes(1.0), 0, epsilon, rms=rms)))
    return np.abs(got - exact) / (size + spread)


@pytest.mark.parametrize("rms", [True, False])
@pytest.mark.parametrize("width", [64, 576, 4096])
def test_random_rows_of_any_magnitude_are_near_float64(width: int, rms: bool) -> None:
    """Magnitudes whose squares overflow or vanish in FP16 have no larger errors."""
    rng = np.random.default_rng(width)
    scale = 2.0 ** rng.integers(-6, 13, (60, 1))
    row = codes((rng.standard_normal((60, width)) + rng.standard_normal((60, 1))) * scale)
    weight, bias = codes(rng.standard_normal((2, width)))
    assert norm_errors(row, weight, bias, rms=rms).max() < 2.0**-8


def test_outlier_does_not_affect_other_elements() -> None:
    rng = np.random.default_rng(3)
    row = rng.standard_normal((20, 576))
    row[:, 5] *= 3000
    weight = codes(np.ones(576))
    assert norm_errors(codes(row), weight, weight, rms=True).max() < 2.0**-8


def test_real_rows_are_what_the_model_computes() -> None:
    """SmolLM2's norms, whose rows have outliers with squares beyond FP16."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    for layer in LAYERS:
        states = codes(trace.hidden(layer)[0])
        weight = codes(trace.norm(layer, "input"))
        assert norm_errors(states, weight, weight, rms=True).max() < 2.0**-8


def test_real_heads_are_rotated_as_in_the_model() -> None:
    p = SpecialFunctionModuleParameters(
        vector=VectorProcessingUnitParameters(head_size=64), hidden_size=64, lanes=1
    )
    before, after = (head_vectors(name, 64) for name in ("q_before_rope", "q"))
    for token in range(0, TOKENS, 37):
        cosine, sine = angles(p, token)
        got = values(rotary(before[token], cosine, sine))
        exact = exact_rotary(before[token], cosine, sine)
        assert np.abs(got - exact).max() < 2.0**-10 * 2 * np.abs(exact).max()
        assert np.abs(got - values(after[token])).max() < 2.0**-8 * np.abs(exact).max()


def test_every_gate_is_near_float64() -> None:
    """All finite FP16 numbers as gates; below -11.09 the sigmoid is 0."""
    gate = np.arange(1 << 16).astype(np.uint16)
    gate = gate[np.abs(values(gate)) < 60000]
    up = np.full(gate.shape, codes(1.0))
    error = np.abs(values(silu(gate, up)) - exact_silu(gate, up))
    assert np.all(error <= 2.0**-8 * np.abs(exact_silu(gate, up)) + 2.0**-12.4)
    assert not silu(codes(np.array([-12.0])), codes(np.array([1.0])))[0] & 0x7FFF


def test_rows_are_fitted_without_loss() -> None:
    assert np.array_equal(values(fitted(np.arange(4.0), 6)), [0, 1, 2, 3, 0, 1])
