"""P3-LLM's system in Amaranth's simulator: linear layers with several groups per row."""

from dataclasses import replace

import numpy as np
import pytest

from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import Model
from tests.p3llm.test_small_layer import run_layer, run_steps, smallest

pytestmark = pytest.mark.depends()


def several_groups(batch: int, *, vocabulary: int = 0) -> P3llmParameters:
    """Three groups of a hidden state, one of the heads, two between the feed-forward matrices."""
    return replace(
        smallest(2, lanes=4, vocabulary=vocabulary, batch=batch),
        hidden_size=48,
        intermediate_size=32,
        group_weights=16,
    )


@pytest.mark.full
@pytest.mark.parametrize(("batch", "cached"), [(1, [9]), (2, [17, 4])])
def test_a_layer_is_equal_to_the_model(batch: int, cached: list[int]) -> None:
    """Totals of several groups, for one request and two: hidden states and every byte."""
    p, rng = several_groups(batch), np.random.default_rng(batch)
    model = Model.random(p, cached, rng)
    image, states = model.image, rng.normal(size=(batch, p.hidden_size)).astype(np.float32)
    expected = model.step(0, states, cached)
    got, after, status = run_layer(p, image, states, cached)
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0


@pytest.mark.full
def test_each_request_has_its_prediction() -> None:
    """Pieces of the LM head are back to back; totals are read while the next piece runs."""
    p, rng = several_groups(2, vocabulary=70), np.random.default_rng(7)
    model = Model.random(p, [9, 4], rng)
    assert model.vocabulary is not None
    states = rng.normal(size=(p.batch, p.hidden_size)).astype(np.float32)
    got, _after, status = run_steps(p, model.image, [(p.layers, [0, 0], states)])
    expected = [model.vocabulary.predicted(state, p) for state in states]
    assert got[0].tolist() == [list(one) for one in expected]
    assert status == 0
