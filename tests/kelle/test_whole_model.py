"""Quantisation step of Kelle's whole model: derived from a text, rejected if it does not fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.kelle import whole_model
from golden.kelle.decoder_layer import LIMIT
from golden.kelle.whole_model import IntegerModel, integer_model
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.nonlinear.row_norm import EPSILON_BITS
from systola.generation.kelle import KelleSystem
from tests.generation.random_models import random_model

SHAPE = {"hidden_size": 32, "head_size": 8, "context_length": 64}
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def integers(factor: float) -> tuple[IntegerModel, Any]:
    """Quantise a random model whose hidden states are multiplied by a factor."""
    model = random_model(**SHAPE)
    own = model.tensor

    def tensor(layer: int | None, name: str) -> np.ndarray:
        grown = name in ("embedding", "output", "down")
        return own(layer, name) * np.float32(factor if grown else 1)

    model = replace(model, tensor=tensor)
    p = KelleSystem.fitted(model, entry_named("kelle").parameters("tiny"))
    return integer_model(model, TOKENS, p), model.embedding[TOKENS[1:]]


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**-2, 2.0**12])
def test_step_follows_the_size_of_hidden_states(factor: float) -> None:
    plain, _rows = integers(1.0)
    grown, rows = integers(factor)
    assert np.log2(grown.step).is_integer()
    assert np.abs(rows).max() / grown.step < LIMIT
    assert all(layer.epsilon < 1 << EPSILON_BITS for layer in grown.layers)
    if factor > 2.0**-10:
        assert grown.step == plain.step * factor
    else:
        # The norms' epsilon limits the step: with half the step it would have too many bits.
        assert 4 * grown.layers[0].epsilon >= 1 << EPSILON_BITS


def test_rejects_normalised_states_beyond_their_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalised elements are at most the root of the width, so the test lowers the limit."""
    monkeypatch.setattr(whole_model, "LIMIT", 1 << 10)
    with pytest.raises(UserError, match=r"normalised hidden states .* at most 1\.00, not \d\.\d"):
        integers(1.0)
