"""The key smoothing's model against torch, its bounds, and its effect on quantised keys."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from golden.arith.float_values import codes, values
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.p3llm.quantisers.key_smoothing import fused_queries, smoothed_keys, smoothing_factors
from hdl.p3llm.quantisers.key_smoothing import KeySmoothingParameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace
from tests.p3llm.quantisers import authors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"head_size": 100}, "head_size must be a multiple of lanes, not 100"),
        ({"head_size": 32, "heads": 1}, "heads must have at least two slices, not 1"),
        ({"stages": 0}, "stages must be an integer from 1 to 16, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        KeySmoothingParameters(**change)


def test_real_keys_are_as_by_the_authors_in_half_precision() -> None:
    """Keys, factors and queries of three layers of SmolLM2: 0 differ."""
    for layer in LAYERS:
        for head in (0, 3, 6):
            attention = trace().attention_trace(layer, head)
            keys, queries = codes(attention.k), codes(attention.q)
            half = torch.tensor(keys.view(np.float16))
            smoothed, factors = authors.smoothed(half)
            got = smoothing_factors(keys)
            assert np.array_equal(got.view(np.float16), factors.numpy())
            assert np.array_equal(smoothed_keys(keys, got).view(np.float16), smoothed.numpy())
            fused = torch.tensor(queries.view(np.float16)) * factors
            assert np.array_equal(fused_queries(queries, got).view(np.float16), fused.numpy())


def test_rounding_smoothed_keys_to_fp16_moves_few_codes() -> None:
    """Against the authors' algorithm in float32 throughout: the rounding between the units."""
    differ = compared = 0
    for layer in LAYERS:
        for head in (0, 3, 6):
            bits = codes(trace().attention_trace(layer, head).k)
            got, _, _ = int4_quantiser(smoothed_keys(bits, smoothing_factors(bits)))
            smoothed, _ = authors.smoothed(torch.tensor(values(bits)).float())
            theirs, _, _ = authors.int4(smoothed)
            differ += int((got != theirs.numpy()).sum())
            compared += got.size
    assert 0 < differ < 2e-3 * compared


def test_a_channel_of_zeros_stays_as_it_is() -> None:
    keys = codes([[0.0, 2.0], [-0.0, -4.0]])
    factors = smoothing_factors(keys)
    assert values(factors).tolist() == [[1.0, 4.0]]
    assert values(smoothed_keys(keys, factors)).tolist() == [[0.0, 0.5], [0.0, -1.0]]
