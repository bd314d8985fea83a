"""Vector processing unit: the model against float64, its order of additions, its parameters."""

import re
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.vpu.vector_processing_unit import (
    dot_product,
    dot_product_bound,
    element_wise,
    exact_dot_product,
)
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from testbenches.lad.vectors import head_vectors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_size": 1}, "head_size must be an integer from 2 to 256, not 1"),
        ({"add_stages": 0}, "add_stages must be an integer from 1 to 4, not 0"),
        ({"multiply_stages": 5}, "multiply_stages must be an integer from 1 to 4, not 5"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        VectorProcessingUnitParameters(**change)


def test_latencies_follow_from_the_stages() -> None:
    p = VectorProcessingUnitParameters()
    assert (p.vector_latency, p.scalar_latency) == (3, 24)
    p = VectorProcessingUnitParameters(head_size=5, multiply_stages=1, add_stages=1)
    assert (p.vector_latency, p.scalar_latency) == (2, 5)


@pytest.mark.parametrize("head_size", [2, 5, 64, 128])
def test_random_dot_products_are_within_the_bound(head_size: int) -> None:
    rng = np.random.default_rng(head_size)
    scale = 2.0 ** rng.integers(-14, 5, (4000, 1))
    a = codes(rng.standard_normal((4000, head_size)) * scale)
    b = codes(rng.standard_normal((4000, head_size)))
    error = np.abs(values(dot_product(a, b)) - exact_dot_product(a, b))
    assert np.all(error <= dot_product_bound(a, b))


def test_adjacent_pairs_are_added_first() -> None:
    """1 vanishes in a sum with 2048: the order of the additions decides the result."""
    one = codes(np.ones(4))
    assert values(dot_product(codes([2048.0, 1, 1, 1]), one)) == 2050
    assert values(dot_product(codes([2048.0, -2048, 1, 1]), one)) == 2


def test_numpys_own_half_precision_agrees() -> None:
    """Products and pairwise sums by numpy's float16, an independent implementation."""
    q, k = (head_vectors(name, 64) for name in "qk")
    terms = q.view(np.float16) * k.view(np.float16)
    while terms.shape[-1] > 1:
        terms = terms[..., ::2] + terms[..., 1::2]
    assert np.array_equal(dot_product(q, k), terms[..., 0].view(np.uint16))
    scaled = (q[:, :1].view(np.float16) * k.view(np.float16)).view(np.uint16)
    assert np.array_equal(element_wise(q[:, :1], k), scaled)


def test_real_scores_are_near_the_model_s_own() -> None:
    q, k = (head_vectors(name, 64) for name in "qk")
    got = values(dot_product(q[-1], k))
    exact = exact_dot_product(q[-1], k)
    assert np.all(np.abs(got - exact) <= dot_product_bound(np.broadcast_to(q[-1], k.shape), k))
