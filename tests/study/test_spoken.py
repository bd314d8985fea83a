"""Losses of a window against torch, and that each reader is named."""

import numpy as np
import pytest

from golden.study.spoken import READERS, window_loss
from systola.generate import SYSTEMS


def test_loss_is_that_of_torch() -> None:
    import torch

    rng = np.random.default_rng(1)
    logits, tokens = rng.normal(0, 9, (12, 40)), rng.integers(0, 40, 12).tolist()
    theirs = torch.nn.functional.cross_entropy(
        torch.tensor(logits[:-1]), torch.tensor(tokens[1:]), reduction="sum"
    )
    assert window_loss(logits, tokens) == pytest.approx(float(theirs), rel=1e-12)
    # What the last token predicts has no word to be held against.
    logits[-1] = 0
    assert window_loss(logits, tokens) == pytest.approx(float(theirs), rel=1e-12)


def test_all_systems_that_speak_have_a_reader() -> None:
    assert set(READERS) == {"float32", *SYSTEMS}
