"""Rotary embedding: the model against float64 and against SmolLM2's own q and k; parameters."""

from typing import Any

import numpy as np
import pytest

from golden.arith.fixed_point import quantise, to_float
from golden.llm import open_trace
from golden.nonlinear.rotary_embedding import circle, error_bound, exact_rotation, paired, rotate
from hdl.catalog import entry_named
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from testbenches.nonlinear.tb_rotary_embedding import FORMAT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 1}, "lanes must be a power of two between 2 and 64, not 1"),
        ({"head_size": 80}, "head_size must be a multiple of lanes, not 80"),
        ({"head_size": 512}, "head_size must be an integer from 32 to 256, not 512"),
        ({"base": 1}, "base must be an integer from 2 to 10000000, not 1"),
        ({"position_bits": 21}, "position_bits must be an integer from 1 to 20, not 21"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RotaryEmbeddingParameters(**change)


def test_sine_and_cosine_at_every_angle() -> None:
    """Test all 65,536 angles of a quarter turn."""
    places = np.arange(1 << 16)
    angles = places * np.pi / 2 / (1 << 16)
    for got, exact in zip(circle(places), (np.cos(angles), np.sin(angles)), strict=True):
        assert np.abs(got / 32768 - exact).max() < 2.1e-5
        assert got.min() >= 0 and got.max() == 32768


@pytest.mark.parametrize("preset", ["tiny", "smollm2", "paper"])
def test_bound_at_every_position(preset: str) -> None:
    p = entry_named("rotary_embedding").parameters(preset)
    positions = np.arange(1 << p.position_bits)
    rng = np.random.default_rng(11)
    # Small enough that no result saturates.
    vectors = rng.integers(-23170, 23171, (len(positions), p.head_size))
    error = np.abs(rotate(vectors, positions, p) - exact_rotation(vectors, positions, p))
    assert np.all(error <= error_bound(vectors))


def test_results_out_of_range_saturate() -> None:
    p = RotaryEmbeddingParameters(lanes=2, head_size=2, position_bits=8)
    positions = np.arange(256)
    vectors = np.full((256, 2), -(1 << 15))
    got = rotate(vectors, positions, p)
    exact = np.clip(exact_rotation(vectors, positions, p), -(1 << 15), (1 << 15) - 1)
    assert np.all(np.abs(got - exact) <= error_bound(vectors))
    assert got.min() == -(1 << 15) and got.max() == (1 << 15) - 1


def test_pairs_become_adjacent() -> None:
    assert list(paired(np.arange(8))) == [0, 4, 1, 5, 2, 6, 3, 7]


def test_real_queries_and_keys() -> None:
    """Rotate `q_before_rope` to `q` and `k_before_rope` to `k`, all heads of three layers."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = entry_named("rotary_embedding").parameters("smollm2")
    positions = np.arange(640)
    for layer in trace.layers:
        for head in range(trace.heads):
            attention = trace.attention_trace(layer, head)
            for before, after in (
                (attention.q_before_rope, attention.q),
                (attention.k_before_rope, attention.k),
            ):
                got = to_float(rotate(paired(quantise(before, FORMAT)), positions, p), FORMAT)
                assert np.abs(got - paired(after)).max() < 0.0013
