"""Losses of a window against torch, and that each reader is named."""

import numpy as np
import pytest

from golden.llm.model import SMOLLM2
from golden.study.generated import (
    READERS,
    kelle_parameters,
    lad_parameters,
    measured,
    window_loss,
)
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


def test_all_systems_that_generate_text_have_a_reader() -> None:
    assert set(READERS) == {"float32", *SYSTEMS}


@pytest.mark.parametrize("budget", [64, 128, 512])
def test_kelle_holds_the_whole_model_at_a_budget(budget: int) -> None:
    p = kelle_parameters(SMOLLM2, budget)
    assert (p.layers, p.slots, p.vocabulary_size) == (30, budget, 49152)
    assert p.words >= p.layers * (budget * p.kv_heads + p.vectors * p.memory.edram.vector_entries)


def test_lad_has_the_heads_of_the_whole_model() -> None:
    p = lad_parameters(SMOLLM2)
    assert p.tile.heads * p.tiles == 30 * 9


def test_perplexity_is_of_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = list(range(1, 7))

    class Model:
        def tokens_of(self, words: str) -> list[int]:
            return text

    def sure(tokens: list[int]) -> np.ndarray:
        """Give each window's first token as much again as all others have together."""
        logits = np.zeros((len(tokens), 8))
        logits[:, tokens[0]] = np.log(7)
        return logits

    monkeypatch.setattr("golden.study.generated.open_language_model", Model)
    monkeypatch.setitem(READERS, "veda", lambda model, budget: sure)
    found = measured("veda", windows=2, context=3, budget=64)
    # The first token never recurs, and its probability is 1/14.
    assert found["nats/token"] == pytest.approx([np.log(14)] * 2)
    assert found["perplexity"] == pytest.approx(14)
    assert (found["tokens"], found["budget"]) == (4, 64)
