"""Steps of MEADOW's whole model: derived from a text, and refused if they do not fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.meadow import whole_model
from golden.meadow.layer_quantisation import NORM_UNIT, fitting_ratio
from golden.meadow.model_ranges import MARGIN, require_norm_weights, state_step
from golden.meadow.whole_model import WholeModel, integer_model
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.meadow.parameters import MeadowParameters
from hdl.nonlinear.row_norm import EPSILON_BITS
from systola.generation.meadow import MeadowSystem
from tests.generation.random_models import random_model

SHAPE = {"hidden_size": 16, "intermediate_size": 32, "context_length": 16}
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
SMOLLM2 = entry_named("meadow").parameters("smollm2")


def scaled(factor: float, name: str = "embedding") -> tuple[Any, MeadowParameters]:
    """Return a random model with a larger or smaller tensor, and its parameters."""
    model = random_model(**SHAPE)
    own = model.tensor

    def tensor(layer: int | None, which: str) -> np.ndarray:
        return own(layer, which) * np.float32(factor if which == name else 1)

    p = MeadowSystem.fitted(model, entry_named("meadow").parameters("tiny"))
    return replace(model, tensor=tensor), p


def test_step_of_smollm2_is_that_of_its_largest_state() -> None:
    """22,552 in the calibration text; 24 bits then hold 32,768."""
    assert state_step(22_552.0, SMOLLM2) == 2.0**-8
    assert state_step(32_767 / MARGIN, SMOLLM2) == 2.0**-8
    assert state_step(32_768 / MARGIN + 1, SMOLLM2) == 2.0**-7


@pytest.mark.parametrize("largest", [1e-9, 1e-3, 1.0, 700.0, 1e6])
def test_states_and_epsilon_fit(largest: float) -> None:
    step = state_step(largest, SMOLLM2)
    assert np.log2(step).is_integer()
    assert MARGIN * largest / step <= (1 << 23) - 1
    epsilon = round(SMOLLM2.hidden_size * 1e-5 / step**2)
    assert epsilon < 1 << EPSILON_BITS
    # Half of the step would break one of the two limits.
    assert 2 * MARGIN * largest / step > (1 << 23) - 1 or 4 * epsilon >= 1 << EPSILON_BITS


@pytest.mark.parametrize("factor", [2.0**-2, 2.0**10, 2.0**18])
def test_tokens_do_not_depend_on_the_size_of_hidden_states(factor: float) -> None:
    """A common factor of embedding, output and down projection does not change the logits."""
    model, p = scaled(1.0)
    plain = integer_model(model, TOKENS, p)
    own = model.tensor

    def tensor(layer: int | None, which: str) -> np.ndarray:
        grown = which in ("embedding", "output", "down")
        return own(layer, which) * np.float32(factor if grown else 1)

    grown = integer_model(replace(model, tensor=tensor), TOKENS, p)
    assert grown.step == plain.step * factor
    logits = []
    for integers, size in ((plain, 1.0), (grown, factor)):
        states = integers.embedded(model.embedding[TOKENS] * np.float32(size))
        assert np.abs(states).max() < 1 << 23
        logits.append(WholeModel(p, integers).step(states).sums * integers.vocabulary.step)
    assert np.abs(logits[0] - logits[1]).max() < 0.05 * np.abs(logits[0]).max()


def test_rejects_norm_weights_beyond_16_bits() -> None:
    require_norm_weights(np.array([-31.9]), SMOLLM2)
    with pytest.raises(UserError, match=r"must be at most 32\.00 in its INT8 steps, not 32\.10"):
        require_norm_weights(np.array([1.0, -32.1]), SMOLLM2)


@pytest.mark.parametrize("place", ["require_norm_range", "require_norm_weights"])
def test_whole_model_checks_its_norms(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    model, p = scaled(1.0)

    def refusing(*arguments: Any) -> None:
        raise UserError("refused")

    monkeypatch.setattr(whole_model, place, refusing)
    with pytest.raises(UserError, match="refused"):
        integer_model(model, TOKENS, p)


def test_smoothing_keeps_norm_weights_in_their_format() -> None:
    """Channels with small inputs get ratios with which their norm weights fit 16 bits."""
    inputs = np.array([1.0, 0.01, 3.0, 1e-4])
    ratio, own = np.sqrt(inputs), np.ones(4)
    step = (inputs / ratio).max() / 127
    with pytest.raises(UserError, match="norm weights"):
        require_norm_weights(own * NORM_UNIT / (ratio * step), SMOLLM2)
    raised = fitting_ratio(ratio, inputs, own, SMOLLM2)
    assert raised[2] == ratio[2] and raised[3] > ratio[3]
    step = (inputs / raised).max() / 127
    require_norm_weights(own * NORM_UNIT / (raised * step), SMOLLM2)


def test_smoothing_that_fits_is_unchanged() -> None:
    inputs = np.array([1.0, 0.9, 3.0])
    ratio = np.sqrt(inputs)
    assert fitting_ratio(ratio, inputs, np.ones(3), SMOLLM2) is ratio
