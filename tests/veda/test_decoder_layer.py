"""Test the model of a decoder layer against float64, and against SmolLM2 itself."""

from dataclasses import replace

import numpy as np
import pytest

from golden.arith.float_values import values
from golden.llm import layers
from golden.veda.array.flexible_pe_array import Beats, outer_product, run
from golden.veda.decoder_layer import DecoderLayer, rows, sums
from golden.veda.exact_layer import DEVIATIONS, exact_layer
from hdl.catalog import entry_named
from hdl.veda.array.array_parameters import ArrayMode
from testbenches.veda.decode_work import open_tokens
from testbenches.veda.layer_weights import angles_of, real_states, real_weights

ENTRY = entry_named("veda")


@pytest.mark.parametrize("preset", ["tiny", "tiny_wide", "tiny_two_copies", "smollm2"])
def test_model_is_near_the_truth(preset: str) -> None:
    p, trace = ENTRY.parameters(preset), open_tokens()
    weights = real_weights(p, trace, 14)
    layer, states = DecoderLayer(p, weights), real_states(p, trace, 14)
    for position in range(4):
        angles = angles_of(p, position)
        cache = layer.cache
        past = cache.keys[:, :position].copy(), cache.values[:, :position].copy()
        result = layer.step(states[position], *angles)
        truth, off = exact_layer(p, weights, states[position], angles, past)
        exact = layers.exact_layer(
            replace(weights.mapped(values), query=values(weights.query) / np.log2(np.e)),
            values(states[position]),
            (values(angles[0]), values(angles[1])),
            (values(past[0]), values(past[1])),
        )
        np.testing.assert_allclose(truth, exact, rtol=1e-9, atol=1e-9)
        assert (abs(values(result.state) - truth) <= DEVIATIONS * off).all()
        # The bound is useful: it is small relative to the layer's change of the state.
        change = np.sqrt(np.mean((truth - values(states[position])) ** 2))
        if abs(truth).max() < 100 * change:
            assert np.sqrt(np.mean(off**2)) < 0.02 * change


def test_model_is_near_the_language_model() -> None:
    """Compare with SmolLM2's own states, in float32 and with its norms and rotary embedding."""
    p, trace = ENTRY.parameters("smollm2"), open_tokens()
    layer = DecoderLayer(p, real_weights(p, trace, 14))
    before, after = real_states(p, trace, 14), trace.hidden(14)[1]
    for position in range(6):
        got = values(layer.step(before[position], *angles_of(p, position)).state)
        away = np.linalg.norm(got - after[position]) / np.linalg.norm(after[position])
        assert away < 1e-3


def test_adjacent_pairs_do_not_change_scores() -> None:
    """The order of a head's elements is the same in queries and keys; SmolLM2's order differs."""
    p, trace = ENTRY.parameters("smollm2"), open_tokens()
    layer = DecoderLayer(p, real_weights(p, trace, 14))
    states = real_states(p, trace, 14)
    for position in range(6):
        layer.step(states[position], *angles_of(p, position))
    key = layer.cache.keys[1, 5].view(np.float16).astype(np.float64)
    theirs = trace.attention_trace(14, 3).k[5]
    assert abs(key[0::2] - theirs[:32]).max() < 0.02 * abs(theirs).max()
    assert abs(key[1::2] - theirs[32:]).max() < 0.02 * abs(theirs).max()


def test_matrix_products_equal_the_arrays() -> None:
    """Wide rows at once, and slices in sequence, equal the results of the array's beats."""
    p = ENTRY.parameters("tiny").array
    rng = np.random.default_rng(1)
    vector, matrix = (
        rng.normal(size=shape).astype(np.float16).view(np.uint16)
        for shape in (3 * p.width, (3 * p.width, 2 * p.width))
    )
    scalars = np.repeat(vector.astype(np.uint64)[:, np.newaxis], p.planes, axis=1)
    parts = np.split(matrix.astype(np.uint64), 2, axis=1)
    expected = np.concatenate([outer_product(p, scalars, part) for part in parts])
    assert np.array_equal(rows(p, vector, matrix), expected)

    outputs, slices = 2 * p.width, 3
    number = np.arange(outputs * slices)
    ones = np.ones_like(number, np.uint64)
    weights = matrix.T.reshape(outputs, slices, p.width).swapaxes(0, 1).reshape(-1, p.width)
    beats = Beats(
        mode=np.full_like(ones, ArrayMode.INNER.value),
        split=0 * ones,
        load_vector=(number % outputs == 0).astype(np.uint64),
        first=(number < outputs).astype(np.uint64),
        last=(number >= outputs * (slices - 1)).astype(np.uint64),
        scalars=np.zeros((len(number), p.planes), np.uint64),
        weights=weights.astype(np.uint64),
        vectors=vector.reshape(slices, p.width).astype(np.uint64),
    )
    expected = np.array([products[0] for products in run(p, beats).dot_products])
    assert np.array_equal(sums(p, vector, matrix), expected)
