"""A text that is decoded block by block has the evictions and the logits of its replay."""

from typing import Any

import numpy as np
import pytest
import torch

from golden.llm.model import load_model
from golden.policies.cache import Cache
from golden.policies.protocol import Policy, Query
from golden.policies.scores import H2O, Aerp, FullCache, Source, TrackedAerp
from golden.policies.voting import Voting
from golden.study.attention import Observer, ReplayedAttention, attending
from golden.study.decoding import DecodedAttention, Decoder
from golden.study.sample import Sample
from tests.generation.small_model import VOCABULARY, write_small_model

TOKENS, BUDGET = 40, 10
BLOCKS = (13, 1, 1, 5, *[1] * 20)
POLICIES = [
    FullCache(),
    H2O(budget=BUDGET),
    Aerp(budget=BUDGET, source=Source.INTEGER),
    TrackedAerp(budget=BUDGET, source=Source.CENTRED),
    Voting(budget=BUDGET, reserved=4),
    H2O(budget=BUDGET, prefill=16),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the small model in float64, in which the size of a block changes no decision."""
    folder = write_small_model(tmp_path_factory.mktemp("small"))
    return load_model(folder / "model.safetensors").double()


class Attended(Observer):
    """Record the tokens that each query attends to."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], list[list[int]]] = {}

    def stepped(self, layer: int, query: Query, cache: Cache) -> None:
        """Keep the positions of all caches."""
        self.found[layer, query.now] = query.positions[0].sort(-1).values.tolist()


def text() -> list[int]:
    return np.random.default_rng(5).integers(0, VOCABULARY, TOKENS).tolist()


def replay(model: Any, policy: Policy) -> tuple[list[int], Attended]:
    """Return the most probable token after each token of the text, all queries at once."""
    observer = Attended()
    attention = ReplayedAttention([policy], observer=observer)
    with torch.inference_mode(), attending(model, attention):
        logits = model(input_ids=torch.tensor([text()]), use_cache=False).logits[0]
    return logits.argmax(-1).tolist(), observer


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_blocks_decide_as_the_whole_text(model: Any, policy: Policy) -> None:
    expected, replayed = replay(model, policy)
    observer = Attended()
    attention = DecodedAttention(policy, 64, observer=observer)
    decoder = Decoder(model, attention)
    left, predicted, ends = text(), [], np.cumsum(BLOCKS)
    for count in BLOCKS:
        block, left = left[:count], left[count:]
        predicted.append(decoder.step(block))
    assert not left
    assert predicted == [expected[end - 1] for end in ends]
    assert observer.found == replayed.found
    caches = policy.unit.caches(4, 2)
    assert attention.evicted == 2 * caches * max(TOKENS - policy.budget, 0)


def test_sample_of_a_text_that_ends_early_is_compared(model: Any) -> None:
    policy = Voting(budget=BUDGET, reserved=4)
    sample = Sample(policy, layer=1, cache=0, tokens=TOKENS + 100)
    decoder = Decoder(model, DecodedAttention(policy, 64, observer=sample))
    for token in text():
        decoder.step([token])
    checked = sample.check()
    assert checked.double.equal
    assert checked.double.evictions == checked.exact.evictions == TOKENS - BUDGET - 1
