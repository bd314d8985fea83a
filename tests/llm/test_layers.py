"""The float64 layer on the model's own weights is the model's layer."""

from dataclasses import replace

import numpy as np
import pytest

from golden.llm import Trace, layers
from golden.llm.model import SMOLLM2


@pytest.mark.parametrize("layer", [0, 14])
def test_layer_is_the_language_models(trace: Trace, layer: int) -> None:
    """The output states of SmolLM2's layer are reproduced within float32 accuracy."""
    sizes = SMOLLM2
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
    small = replace(
        SMOLLM2, hidden_size=64, intermediate_size=96, heads=2, kv_heads=1, head_size=16
    )
    large = replace(SMOLLM2, hidden_size=640, intermediate_size=1600, heads=10, kv_heads=5)
    for sizes in (small, large):
        weights = layers.real_weights(sizes, trace, 14)
        assert weights.query.shape == (sizes.hidden_size, sizes.heads, sizes.head_size)
        assert weights.key.shape == (sizes.hidden_size, sizes.kv_heads, sizes.head_size)
        assert weights.output.shape == (sizes.heads, sizes.head_size, sizes.hidden_size)
        assert weights.down.shape == (sizes.intermediate_size, sizes.hidden_size)
