"""The fast forms against the bit-exact forms that the policies name, on captured tensors."""

from importlib import import_module

import numpy as np
import pytest

from golden.policies.agreement import (
    LAYERS,
    POLICIES,
    TOKENS,
    Agreement,
    agreement,
    compare,
    row,
    vote_differences,
)
from golden.policies.voting import Voting
from hdl.catalog import entry_named
from hdl.paths import ROOT
from systola.options import choose

LAYER, SHORT = LAYERS[1], 192
"""One layer, and 64 tokens beyond the budget."""


def test_comparison_counts_evictions_and_survivors() -> None:
    one = [[0], [0, 1], [1, 2], [2, 3]]
    other = [[0], [0, 1], [0, 2], [2, 3]]
    as_arrays = ([np.array(step) for step in form] for form in (one, other))
    assert compare(*as_arrays) == Agreement(evictions=2, same=0, cached=2, common=2)


@pytest.mark.parametrize("name", POLICIES)
def test_bit_exact_form_and_hardware_exist(name: str) -> None:
    policy = POLICIES[name]
    assert policy.exact is not None
    module, _, function = policy.exact.rpartition(".")
    assert callable(getattr(import_module(module), function))
    assert policy.hardware is not None
    for preset in ("tiny", "smollm2"):
        entry_named(policy.hardware.unit).dimensions(preset, policy.hardware.settings)
    variables = policy.hardware.accelerator
    assert choose(variables["TOP"], None, None, variables.get("SET", "")).parameters


@pytest.mark.parametrize("name", ["aerp_integers", "aerp_centred"])
def test_integer_sums_decide_as_the_evictor(name: str) -> None:
    found = agreement(POLICIES[name], [LAYER], SHORT)
    assert found.evictions == 3 * (SHORT - 128 - 1)
    assert found.equal


@pytest.mark.parametrize("name", ["voting", "voting_without_fallback"])
def test_votes_keep_the_tokens_of_the_engine(name: str) -> None:
    found = agreement(POLICIES[name], [LAYER], SHORT)
    assert found.evictions == SHORT - 128 - 1
    assert found.common == found.cached


def test_each_differing_vote_is_one_of_fp16() -> None:
    """Votes differ by rounding near the threshold, or by ties, and by nothing else.

    With a mean of 1, a probability near the threshold and the threshold are at most 1, and so is
    the root times b. FP16 moves each of them by at most half a unit in the last place, 2**-11; the
    engine truncates the root to 14 bits.
    """
    policy = POLICIES["voting"]
    assert isinstance(policy, Voting)
    found = vote_differences(policy, [LAYER], SHORT)
    assert found.votes == 9 * sum(min(now + 1, 129) for now in range(32, SHORT))
    assert 0 < found.nearest <= 3 * 2**-11 + 2**-14
    assert found.closest < 2**-11
    assert found.tied > 0


@pytest.mark.full
def test_agreement_equals_the_table_of_the_page() -> None:
    page = (ROOT / "docs/policies.md").read_text()
    for name, policy in POLICIES.items():
        assert row(name, agreement(policy, LAYERS, TOKENS)) in page
