"""Hybrid processing elements: parameters, and model compared with plain sums."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden.meadow.tile.parallel_processing_element import dot_products
from hdl.meadow.tile.element_parameters import ElementParameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multipliers": 48}, "multipliers must be a power of two between 2 and 128, not 48"),
        ({"input_file": 3}, "input_file must be a power of two between 2 and 1024, not 3"),
        ({"weight_file": 0}, "weight_file must be a power of two between 2 and 1024, not 0"),
        ({"output_file": 1}, "output_file must be a power of two between 2 and 8192, not 1"),
        ({"scalar_bits": 18}, "scalar_bits must be an integer from 8 to 17, not 18"),
        (
            {"sum_bits": 24},
            "sum_bits must hold the sums over a row of the input register file, not 24",
        ),
        (
            {"sum_bits": 28, "scalar_bits": 17},
            "sum_bits must hold the sums over the weight register file, not 28",
        ),
        ({"sum_bits": 23}, "sum_bits must be an integer from 24 to 40, not 23"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ElementParameters(**change)


def test_results_equal_plain_sums() -> None:
    """The reference uses Python's integers, and fractions for rounding half to even."""
    rng = np.random.default_rng(1)
    rows, weights = rng.integers(-128, 128, (3, 24)), rng.integers(-128, 128, (5, 24))
    wide = dot_products(rows, weights, scale=0, shift=0, wide=True)
    got = dot_products(rows, weights, scale=3, shift=9)
    for i, row in enumerate(rows):
        for j, weight in enumerate(weights):
            total = sum(int(a) * int(b) for a, b in zip(row, weight, strict=True))
            assert wide[i, j] == total
            assert got[i, j] == min(max(round(Fraction(3 * total, 512)), -128), 127)


def test_ties_are_rounded_to_even() -> None:
    rows = np.array([[1], [3], [5], [-1], [-3]])
    got = dot_products(rows, np.array([[1]]), scale=1, shift=1)
    assert got[:, 0].tolist() == [0, 2, 2, 0, -2]
