"""The INT4 quantiser's model against the authors' algorithm, and its edge cases."""

import numpy as np
import torch

from golden.arith.float_values import codes, values
from golden.p3llm.quantisers.e4m3_quantiser import finite_values
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from hdl.p3llm.quantisers.int4_quantiser import Int4QuantiserParameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, edges, random_vectors, trace
from tests.p3llm.quantisers import authors


def check(bits: np.ndarray) -> int:
    """Require the authors' codes, zero points and scales; return the number of codes."""
    got, zero_points, scales = int4_quantiser(bits)
    theirs, zero, scale = authors.int4(torch.tensor(finite_values(bits)))
    assert np.array_equal(got, theirs.numpy())
    assert np.array_equal(zero_points, zero.numpy())
    assert np.array_equal(scales, scale.half().numpy().view(np.uint16))
    return got.size


def test_every_key_and_value_is_as_by_the_authors_algorithm() -> None:
    """Keys, smoothed keys and values of three layers of SmolLM2, rounded to FP16: 0 differ."""
    compared = 0
    for layer in LAYERS:
        for head in (0, 3, 6):
            attention = trace().attention_trace(layer, head)
            smoothed, _ = authors.smoothed(torch.tensor(attention.k))
            for part in (attention.k, attention.v, smoothed.numpy()):
                compared += check(codes(part))
    assert compared > 1_000_000


def test_random_and_extreme_vectors_are_as_by_the_authors_algorithm() -> None:
    for width in (2, 8, 64, 128):
        check(np.concatenate([random_vectors(np.random.default_rng(width), 800, width)]))
        check(edges(width))


def test_a_code_is_within_half_a_step_unless_its_group_has_one_sign() -> None:
    bits = codes(trace().attention_trace(14, 0).v)
    got, zero_points, scales = int4_quantiser(bits)
    exact = values(bits)
    spread = exact.max(-1, keepdims=True) - exact.min(-1, keepdims=True)
    error = np.abs((got.astype(int) - zero_points) * spread / 15 - exact)
    # Half a step of the element, half of the zero point.
    assert np.all(error <= spread / 15 * (1 + 1e-6))
    assert np.all(np.abs(values(scales) / (spread / 15) - 1) <= 2.0**-10)


def test_edges_are_as_documented() -> None:
    groups = np.array([[0, 0], [0x3C00, 0x3C00], [0xBC00, 0xBC00], [0x3C00, 0x3E00]])
    got, zero_points, _ = int4_quantiser(groups)
    # Zeros; ones, whose scale is the smallest; their negatives; 1 and 1.5, which are clipped.
    assert zero_points.reshape(-1).tolist() == [0, 0, 15, 0]
    assert got.tolist() == [[0, 0], [15, 15], [0, 0], [15, 15]]


def test_parameters_are_those_of_every_quantiser() -> None:
    p = Int4QuantiserParameters(lanes=8, width=64)
    assert p.turnaround > p.group_latency == 5 + p.scale_stages + p.quotient_stages
