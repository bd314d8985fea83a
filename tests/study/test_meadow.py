"""MEADOW's quantisation, and its latency model against the paper's figures."""

from typing import Any

import numpy as np
import pytest
import torch

from golden.meadow.quantisation import (
    Scheme,
    largest_inputs,
    linear_layers,
    quantised_model,
    smooth,
)
from golden.study.meadow_claims import CHOICES
from golden.study.meadow_latency import MODELS, Board, Work, choice, gain, seconds
from golden.study.meadow_packing import measured


def logits(model: Any, window: np.ndarray) -> Any:
    with torch.inference_mode():
        return model(input_ids=torch.tensor(window, dtype=torch.long)[None]).logits


def test_smoothing_changes_weights_and_no_result(model: Any, windows: np.ndarray) -> None:
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    before, largest = logits(model, windows[0]), largest_inputs(model, windows[0])
    try:
        evened = smooth(model, largest, 0.5)
        assert torch.allclose(logits(model, windows[0]), before, atol=2e-4)
        # What is foretold of the inputs is what they are.
        for name, most in largest_inputs(model, windows[0]).items():
            assert np.allclose(most, evened[name], rtol=1e-3)
        for name, weight in model.state_dict().items():
            assert "layers" not in name or not torch.equal(weight, kept[name])
    finally:
        model.load_state_dict(kept)


@pytest.mark.parametrize("scale", ["tensor", "channel"])
def test_quantised_weights_are_few_and_leave_nothing(
    model: Any, windows: np.ndarray, scale: str
) -> None:
    before = logits(model, windows[0])
    with quantised_model(model, Scheme(scale=scale), windows[0]) as integers:
        for name, linear in linear_layers(model):
            rows = linear.weight if scale == "channel" else linear.weight.reshape(1, -1)
            assert max(len(row.unique()) for row in rows) <= 255
            assert integers[name].shape == tuple(linear.weight.shape)
            assert np.abs(integers[name]).max() == 127
        assert not torch.equal(logits(model, windows[0]), before)
    assert torch.equal(logits(model, windows[0]), before)


def test_an_exponent_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"smoothing must be from 0 to 1, or none, not 1\.5"):
        Scheme(smoothing=1.5)


@pytest.mark.parametrize(("setting", "paper"), CHOICES.items())
def test_choices_are_figure_12(setting: tuple[int, int], paper: str) -> None:
    work = Work(model=MODELS["OPT-125M"], tokens=512, context=512)
    assert choice(work, Board(gigabits=setting[0], elements=setting[1])) == paper


def test_times_of_a_block_by_hand() -> None:
    """512 tokens of OPT-125M at 51 Gb/s: 15.5 MB, 1.52 ms of compute; TPHS 266,752 cycles."""
    work, board = Work(model=MODELS["OPT-125M"], tokens=512, context=512), Board(gigabits=51)
    products, (pipelined,) = work.attention_products(board), work.attention_pipelined(board)
    moved = sum(step.fetched + step.stored for step in products)
    assert moved == 768**2 + 6 * 512 * 768 + 4 * 12 * 512**2
    assert sum(step.cycles for step in products) / 1e5 == pytest.approx(1.52, abs=0.005)
    assert pipelined.cycles == (12 * 43 + 5) * 512
    assert pipelined.fetched + pipelined.stored == 768**2 + 4 * 512 * 768
    assert 1e3 * seconds(products, board) == pytest.approx(2.44, abs=0.01)


def test_gains_are_near_the_papers() -> None:
    model = MODELS["OPT-125M"]
    assert gain(model, 512, 512, Board(gigabits=1), 1.6) == pytest.approx(2.5, rel=0.1)
    assert gain(model, 64, 64, Board(gigabits=1), 1.6) == pytest.approx(1.57, rel=0.02)
    assert gain(model, 1, 576, Board(gigabits=1), 1.55) == pytest.approx(1.47, rel=0.02)


def test_sizes_of_matrices_are_above_their_bound() -> None:
    rng = np.random.default_rng(1)
    matrices = {"0.a": np.rint(rng.normal(0, 4, (200, 200))).astype(np.int8)}
    sizes = measured(matrices)
    assert sizes.bound < sizes.bits["classes"] < sizes.bits["reindexed"] < sizes.bits["naive"]
