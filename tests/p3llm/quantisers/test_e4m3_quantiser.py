"""The E4M3 quantiser's model against the authors' algorithm, a library's cast, and its bounds."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from golden.arith.float_values import codes, values
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser, finite_values
from hdl.p3llm.quantisers.e4m3_quantiser import E4m3QuantiserParameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, edges, random_vectors, trace
from tests.p3llm.quantisers import authors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"width": 32}, "width must be at least two slices, not 32"),
        ({"width": 100}, "width must be a multiple of lanes, not 100"),
        ({"lanes": 1, "width": 8192}, "width must be at most 4000 slices, not 8192"),
        ({"vectors": 17}, "vectors must be an integer from 1 to 16, not 17"),
        ({"scale_stages": 0}, "scale_stages must be an integer from 1 to 10, not 0"),
        ({"quotient_stages": 8}, "quotient_stages must be an integer from 1 to 7, not 8"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        E4m3QuantiserParameters(**change)


def test_every_activation_is_as_by_the_authors_algorithm() -> None:
    """All inputs of linear layers of three layers of SmolLM2, rounded to FP16: 0 differ."""
    compared = 0
    for layer in LAYERS:
        for name in ("q_proj", "o_proj", "gate_proj", "down_proj"):
            bits = codes(trace().linear(layer, name).inputs)
            got, scales = e4m3_quantiser(bits)
            theirs, scale = authors.e4m3(torch.tensor(finite_values(bits)))
            assert np.array_equal(got.view(ml_dtypes.float8_e4m3fn).astype(np.float32), theirs)
            assert np.array_equal(scales, scale.half().numpy().view(np.uint16))
            compared += got.size
    assert compared > 6_000_000


@pytest.mark.parametrize("width", [8, 64, 576])
def test_random_and_extreme_vectors_are_as_by_two_libraries(width: int) -> None:
    """Torch's cast and that of `ml_dtypes`, which saturate only after a clamp."""
    bits = np.concatenate([random_vectors(np.random.default_rng(width), 400, width), edges(width)])
    got, _ = e4m3_quantiser(bits)
    floats = finite_values(bits)
    scale = np.maximum(np.abs(floats).max(-1, keepdims=True) / np.float32(448), np.float32(1e-6))
    clamped = np.clip(floats / scale, -448, 448)
    nan = bits & 0x7FFF > 0x7C00
    by_torch = torch.tensor(clamped).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    by_ml_dtypes = clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(got[~nan], by_torch[~nan])
    assert np.array_equal(got[~nan], by_ml_dtypes[~nan])
    assert nan.any() and np.array_equal(got[nan] & 0x7F, np.full(nan.sum(), 0x7F))


def test_an_element_is_within_half_a_step() -> None:
    """Against the truth ``x / scale`` in float64: 2**-4 of a normal number, or 2**-10."""
    bits = codes(trace().linear(14, "down_proj").inputs[:64])
    got, _ = e4m3_quantiser(bits)
    exact = values(bits)
    scaled = exact * 448 / np.abs(exact).max(-1, keepdims=True)
    numbers = got.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    bound = np.maximum(np.abs(scaled) * 2.0**-4, 2.0**-10) * (1 + 2.0**-20)
    assert np.all(np.abs(numbers - scaled) <= bound)


def test_zeros_stay_zeros_and_equal_elements_are_the_largest() -> None:
    got, scales = e4m3_quantiser(np.array([[0, 0x8000], [0x3C00, 0x3C00]]))
    assert got.tolist() == [[0, 0x80], [0x7E, 0x7E]]
    assert values(scales).reshape(-1) == pytest.approx([1e-6, 1 / 448], rel=0.05)
