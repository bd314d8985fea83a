"""The second-level scaling's model against torch's FP16, its bound, and its purpose."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from golden.arith.float_values import codes, values
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.p3llm.quantisers.value_scaling import value_scaling
from hdl.p3llm.quantisers.value_scaling import ValueScalingParameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 32}, "tokens must be at least two slices, not 32"),
        ({"tokens": 100}, "tokens must be a multiple of lanes, not 100"),
        ({"lanes": 1}, "tokens must be at most 4000 slices, not 4096"),
        ({"divide_stages": 17}, "divide_stages must be an integer from 1 to 16, not 17"),
        ({"multiply_stages": 0}, "multiply_stages must be an integer from 1 to 4, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ValueScalingParameters(**change)


def test_real_probabilities_are_as_by_torch_and_near_the_truth() -> None:
    compared = 0
    for layer in LAYERS:
        for head in (0, 3, 6):
            attention = trace().attention_trace(layer, head)
            scales = int4_quantiser(codes(attention.v))[2].reshape(-1)
            shares = codes(attention.probabilities[-64:])
            rows = np.broadcast_to(scales, shares.shape)
            got, largest = value_scaling(rows, shares)
            half, share = (torch.tensor(x.view(np.float16)) for x in (scales, shares))
            assert np.array_equal(got.view(np.float16), (share * (half / half.max())).numpy())
            assert np.all(largest == scales.max())
            exact = values(shares) * values(rows) / values(scales.max())
            # Two roundings to 11 digits, or to the smallest subnormal.
            assert np.all(np.abs(values(got) - exact) <= exact * 1.001 * 2.0**-10 + 2.0**-24)
            # No product exceeds the exponents of S0E4M4, whereas a scale alone may.
            assert np.all(got <= shares)
            compared += got.size
    assert compared > 300_000


def test_zero_scales_make_zeros() -> None:
    got, largest = value_scaling(np.zeros(4, int), codes([0, 0.25, 0.5, 1]))
    assert not got.any() and not largest.any()
