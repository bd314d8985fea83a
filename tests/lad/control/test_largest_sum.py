"""Argmax: the model against float64, and the parameters' rules."""

import re
from dataclasses import replace

import numpy as np
import pytest

from golden.arith.float_values import values
from golden.lad.control.largest_sum import argmax_token
from hdl.catalog import entry_named
from hdl.lad.control.largest_sum import LargestSumParameters
from hdl.lad.parameters import LadParameters
from hdl.lad.presets import SMOLLM2, TINY


def first_in_order(sums: np.ndarray) -> tuple[int, float]:
    """Return the argmax of numbers, compared one by one; NaNs are ignored."""
    best: tuple[int, float] = (0, float("nan"))
    for token, number in enumerate(values(sums).tolist()):
        if not np.isnan(number) and (np.isnan(best[1]) or number > best[1]):
            best = token, number
    return best


def test_argmax_is_float64_s() -> None:
    """Run random codes, few values, and codes next to NaNs."""
    rng = np.random.default_rng(1)
    kinds = [
        rng.integers(0, 1 << 16, (300, 40)),
        rng.choice([0, 0x8000, 0x8001, 0xFC00, 0x7C01, 0xFE00], (300, 5)),
        rng.choice([0xFC00, 0x7C01, 0xFFFF], (300, 3)),
    ]
    for kind in kinds:
        for sums in kind.astype(np.uint16):
            token, number = first_in_order(sums)
            found, code = argmax_token(sums)
            assert found == token
            assert np.array_equal(values(code), number, equal_nan=True)
            assert code != 0x8000


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        ([0x3C00, 0x4000, 0x4000], (1, 0x4000)),
        ([0xBC00, 0x8000, 0x0000], (1, 0x0000)),
        ([0xFE00, 0x7C01, 0xFC00], (2, 0xFC00)),
        ([0xFC01, 0x7FFF], (0, 0x7E00)),
    ],
)
def test_argmax_by_hand(sums: list[int], expected: tuple[int, int]) -> None:
    assert argmax_token(np.array(sums, np.uint16)) == expected


def test_presets_are_those_of_layers() -> None:
    """SmolLM2's LM head is 16 pieces of 439 groups."""
    entry = entry_named("largest_sum")
    generating: LadParameters = replace(SMOLLM2, vocabulary=49152)
    assert (generating.pieces, generating.piece_groups) == (16, 439)
    assert entry.parameters("smollm2") == LargestSumParameters() == generating.argmax
    assert entry.parameters("tiny") == TINY.argmax


def test_too_few_groups_are_rejected() -> None:
    message = "groups must be at least vocabulary / units, 7, not 6"
    with pytest.raises(ValueError, match=re.escape(message)):
        LargestSumParameters(units=7, vocabulary=45, groups=6)
    assert LargestSumParameters(units=7, vocabulary=45, groups=7).groups == 7


def test_an_illegal_vocabulary_is_rejected() -> None:
    message = "vocabulary must be an integer from 1 to 1048576, not 0"
    with pytest.raises(ValueError, match=re.escape(message)):
        LargestSumParameters(vocabulary=0)
