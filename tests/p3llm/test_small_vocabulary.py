"""The LM head of P3-LLM in Amaranth's simulator, at the smallest dimensions."""

from dataclasses import replace

import numpy as np
import pytest

from testbenches.p3llm.system_models import Model
from tests.p3llm.test_small_layer import run_steps, smallest

pytestmark = pytest.mark.depends()


@pytest.mark.full
@pytest.mark.parametrize("bits", [4, 8])
def test_the_vocabulary_is_equal_to_the_model(bits: int) -> None:
    """Ties in a slice and across both pieces, before and after a layer."""
    p = replace(smallest(1, vocabulary=45), vocabulary_bits=bits)
    rng = np.random.default_rng(7)
    assert [place.outputs for place in p.projection] == [32, 14]
    model = Model.random(p, [9], rng)
    assert model.vocabulary is not None
    image = model.image
    states = rng.normal(size=(5, 1, p.hidden_size)).astype(np.float32)
    steps = [(p.layers if number != 2 else 0, [9], one) for number, one in enumerate(states)]
    got, _after, status = run_steps(p, image, steps)
    for number, one in enumerate(states):
        expected = np.array([model.vocabulary.predicted(one[0], p)])
        if number == 2:
            expected = model.step(0, one, [9]).view(np.uint32)
        assert got[number].tolist() == expected.tolist(), number
    assert status == 0
