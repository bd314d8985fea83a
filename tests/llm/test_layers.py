"""The float64 layer on the model's own weights is the model's layer."""

from dataclasses import dataclass

import numpy as np
import pytest

from golden.llm import Trace, layers
from golden.llm.model import SMOLLM2


@dataclass(frozen=True)
class Sizes:
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward_size: int


def own_sizes(trace: Trace) -> Sizes:
    return Sizes(trace.width, trace.heads, trace.kv_heads, trace.head_size, SMOLLM2.feed_forward)


@pytest.mark.parametrize("layer", [0, 14])
def test_layer_is_the_language_models(trace: Trace, layer: int) -> None:
    """SmolLM2's states behind a layer, in float32, come out to its own accuracy."""
    sizes = own_sizes(trace)
    weights = layers.real_weights(sizes, trace, layer)
    before, after = trace.hidden(layer)
    keys = np.zeros((sizes.kv_heads, 0, sizes.head_size))
    values = keys
    for position in range(6):
        angle = layers.rotary_angles(np.array(position), sizes.head_size, SMOLLM2.rope_base)
        angles = np.cos(angle), np.sin(angle)
        state = before[position].astype(np.float64)
        got = layers.exact_layer(weights, state, angles, (keys, values))
        away = np.linalg.norm(got - after[position]) / np.linalg.norm(after[position])
        assert away < 1e-5
        here = layers.rms_norm(state)
        key = layers.rotated(np.tensordot(here, weights.key, 1), *angles)
        value = np.tensordot(here, weights.value, 1)
        keys = np.concatenate([keys, key[:, np.newaxis]], axis=1)
        values = np.concatenate([values, value[:, np.newaxis]], axis=1)


def test_smaller_and_larger_systems_get_weights(trace: Trace) -> None:
    for sizes in (Sizes(64, 2, 1, 16, 96), Sizes(640, 10, 5, 64, 1600)):
        weights = layers.real_weights(sizes, trace, 14)
        assert weights.query.shape == (sizes.hidden_size, sizes.heads, sizes.head_size)
        assert weights.key.shape == (sizes.hidden_size, sizes.kv_heads, sizes.head_size)
        assert weights.output.shape == (sizes.heads, sizes.head_size, sizes.hidden_size)
        assert weights.down.shape == (sizes.feed_forward_size, sizes.hidden_size)
