"""The special function unit: its parameters, and its model compared with those of its functions."""

import numpy as np
import pytest

from golden.kelle.sfu import SfuModel
from golden.nonlinear.softmax import softmax
from hdl.catalog import entry_named
from hdl.kelle.sfu import SfuParameters
from hdl.nonlinear.activation_functions import ActivationFunctionsParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters


def test_lanes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"the same lanes, not \[8, 32, 32, 32\]"):
        SfuParameters(
            softmax=SoftmaxParameters(lanes=8),
            activation=ActivationFunctionsParameters(),
            norm=RmsNormParameters(),
            rotary=RotaryEmbeddingParameters(),
        )


@pytest.mark.parametrize("preset", ["tiny", "smollm2", "paper"])
def test_functions_have_their_own_presets_dimensions(preset: str) -> None:
    p = entry_named("sfu").parameters(preset)
    for top, part in (
        ("activation_functions", p.activation),
        ("rotary_embedding", p.rotary),
    ):
        assert part == entry_named(top).parameters(preset)
    assert p.softmax.lanes == entry_named("softmax").parameters(preset).lanes
    assert p.norm.width == entry_named("rms_norm").parameters(preset).width


def test_model_is_the_functions() -> None:
    p = entry_named("sfu").parameters("tiny")
    scores, keep = np.array([[0, 1024, -5, 7]]), np.ones((1, 4), bool)
    assert np.array_equal(SfuModel(p).softmax(scores, keep), softmax(scores, keep, p.softmax))
