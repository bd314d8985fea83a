"""A batch of requests in Amaranth's simulator, at the smallest dimensions of P3-LLM's system."""

from dataclasses import replace

import numpy as np
import pytest

from testbenches.p3llm.system_models import Model
from tests.p3llm.test_small_layer import run_layer, run_steps, smallest

pytestmark = pytest.mark.depends()


def alone(model: Model, request: int) -> Model:
    """Return the model of one request: its caches, and what a layer has for all."""
    caches = [[layer[request]] for layer in model.caches]
    one = Model(replace(model.p, batch=1), model.weights, caches, np.random.default_rng(0))
    one.older = [[layer[request]] for layer in model.older]
    return one


@pytest.mark.full
def test_a_batch_is_equal_to_the_model() -> None:
    """Pairs of heads and a single one, of two requests together and a single one."""
    p, rng = smallest(3, batch=3), np.random.default_rng(3)
    cached = [4, 33, 15]
    model = Model.random(p, cached, rng)
    image, states = model.image, rng.normal(size=(p.batch, p.hidden_size)).astype(np.float32)
    expected = model.step(0, states, cached)
    got, after, status = run_layer(p, image, states, cached)
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0


@pytest.mark.full
def test_each_request_is_as_if_alone() -> None:
    """The state and bytes are the same together with another request and alone."""
    p, rng = smallest(1, lanes=4, batch=2), np.random.default_rng(1)
    cached = [9, 2]
    model = Model.random(p, cached, rng)
    states = rng.normal(size=(p.batch, p.hidden_size)).astype(np.float32)
    got, after, _status = run_layer(p, model.image, states, cached)
    for request, position in enumerate(cached):
        one = alone(model, request)
        state, first = states[request : request + 1], one.p.key_base(0)
        found, banks, _status = run_layer(one.p, one.image, state, [position])
        assert found[0].tolist() == got[request].tolist()
        # Its appended data are in its part of the batch's banks.
        mine = slice(p.key_base(0, request), p.key_base(0, request + 1))
        assert (banks[first:] == after[mine]).all()


@pytest.mark.full
def test_each_request_has_its_prediction() -> None:
    """Two requests together and one alone, twice: the argmax of the first texts is cleared."""
    p, rng = smallest(1, vocabulary=45, batch=3), np.random.default_rng(5)
    model = Model.random(p, [9, 4, 6], rng)
    assert model.vocabulary is not None
    steps = rng.normal(size=(2, p.batch, p.hidden_size)).astype(np.float32)
    given = [(p.layers, [0] * p.batch, states) for states in steps]
    got, _after, status = run_steps(p, model.image, given)
    for states, found in zip(steps, got, strict=True):
        expected = [model.vocabulary.predicted(state, p) for state in states]
        assert found.tolist() == [list(one) for one in expected]
    assert status == 0
