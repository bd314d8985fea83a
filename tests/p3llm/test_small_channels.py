"""Several pseudo-channels in Amaranth's simulator, at the smallest dimensions of the system."""

import numpy as np
import pytest

from testbenches.p3llm.system_models import Model
from tests.p3llm.test_small_layer import run_layer, run_steps, smallest

pytestmark = pytest.mark.depends()


@pytest.mark.full
@pytest.mark.parametrize(
    ("heads", "kv_heads", "lanes", "batch", "channels"),
    [
        (2, 2, 2, 1, 2),
        (6, 3, 4, 1, 2),
        (3, 3, 2, 1, 4),
        (3, 1, 2, 2, 2),
        (6, 3, 2, 1, 8),
        (3, 1, 4, 1, 16),
    ],
)
def test_a_layer_is_equal_to_the_model(
    heads: int, kv_heads: int, lanes: int, batch: int, channels: int
) -> None:
    """Heads that divide evenly and not; pairs and single heads; the state, and every byte."""
    p = smallest(heads, kv_heads, lanes, batch=batch, channels=channels)
    rng = np.random.default_rng(heads)
    cached = [33, 9][:batch]
    model = Model.random(p, cached, rng)
    image, states = model.image, rng.normal(size=(batch, p.hidden_size)).astype(np.float32)
    expected = model.step(0, states, cached)
    got, after, status = run_layer(p, image, states, cached)
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0


@pytest.mark.full
def test_argmax_covers_all_pseudo_channels() -> None:
    """Its token may be in any pseudo-channel."""
    p, rng = smallest(2, 2, vocabulary=45, channels=2), np.random.default_rng(5)
    model = Model.random(p, [9], rng)
    assert model.vocabulary is not None
    steps = rng.normal(size=(3, 1, p.hidden_size)).astype(np.float32)
    got, _after, status = run_steps(p, model.image, [(p.layers, [0], states) for states in steps])
    for states, found in zip(steps, got, strict=True):
        assert found.tolist() == [list(model.vocabulary.predicted(states[0], p))]
    assert status == 0
