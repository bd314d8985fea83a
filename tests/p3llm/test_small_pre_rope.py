"""Keys quantised before the rotary embedding, in Amaranth's simulator, at small dimensions."""

from dataclasses import replace

import numpy as np
import pytest

from golden.p3llm.p3llm import Cache
from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import Model
from tests.p3llm.test_small_groups import several_groups
from tests.p3llm.test_small_layer import run_layer, smallest

pytestmark = pytest.mark.depends()


def pre_rope(
    heads: int, kv_heads: int = 1, lanes: int = 2, *, batch: int = 1, channels: int = 1
) -> P3llmParameters:
    """Return the smallest dimensions, with keys that are quantised before the rotary embedding."""
    return replace(smallest(heads, kv_heads, lanes, batch=batch, channels=channels), pre_rope=True)


def require_equal(p: P3llmParameters, model: Model, *positions: list[int]) -> None:
    """Compare a layer's hidden states and bytes with the model's; the last positions count."""
    states = np.random.default_rng(p.heads).normal(size=(p.batch, p.hidden_size)).astype(np.float32)
    image = model.image
    expected = model.step(0, states, positions[-1])
    got, after, status = run_layer(p, image, states, *positions)
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("heads", "kv_heads", "lanes", "cached"),
    [(1, 1, 2, 9), (3, 1, 2, 10), (2, 1, 4, 40), (6, 2, 4, 9), (4, 4, 2, 31)],
)
def test_a_layer_is_equal_to_the_model(heads: int, kv_heads: int, lanes: int, cached: int) -> None:
    """Single heads, pairs, and both; tokens fill a slice, a round, a set, or do not."""
    p = pre_rope(heads, kv_heads, lanes)
    model = Model.random(p, [cached], np.random.default_rng(heads))
    # An earlier, longer text must not affect the result.
    before = [[cached + 5]] if heads == 1 else []
    require_equal(p, model, *before, [cached])


@pytest.mark.full
def test_a_first_token_has_position_zero() -> None:
    """Nothing is cached."""
    p, rng = pre_rope(2, 1, 4), np.random.default_rng(8)
    model = Model.random(p, [9], rng)
    model.caches = [[Cache.empty(cache.factors) for cache in layer] for layer in model.caches]
    require_equal(p, model, [0])


@pytest.mark.full
@pytest.mark.parametrize(("batch", "channels"), [(3, 1), (2, 2)])
def test_requests_and_heads_have_keys_of_their_own(batch: int, channels: int) -> None:
    """Two requests together and one alone; three heads on two pseudo-channels."""
    p = pre_rope(3, 3, 4, batch=batch, channels=channels)
    cached = [4, 33, 15][:batch]
    require_equal(p, Model.random(p, cached, np.random.default_rng(batch)), cached)


@pytest.mark.full
def test_keys_are_read_between_layers_of_several_groups() -> None:
    """Rounds of tiles, with inputs in a ring, before and after the keys of two requests."""
    p = replace(several_groups(2), pre_rope=True)
    cached = [17, 4]
    require_equal(p, Model.random(p, cached, np.random.default_rng(5)), cached)
