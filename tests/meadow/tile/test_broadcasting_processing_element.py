"""Broadcasting processing element: model compared with plain sums and with dot products."""

from fractions import Fraction

import numpy as np

from golden.meadow.tile.broadcasting_processing_element import weighted_sums
from golden.meadow.tile.parallel_processing_element import dot_products


def test_results_equal_plain_sums() -> None:
    rng = np.random.default_rng(2)
    scalars, words = rng.integers(0, 4096, (2, 10)), rng.integers(-128, 128, (10, 4))
    got = weighted_sums(scalars, words, scale=40000, shift=28)
    for i, row in enumerate(scalars):
        for j in range(4):
            total = sum(int(a) * int(b) for a, b in zip(row, words[:, j], strict=True))
            exact = Fraction(40000 * total, 1 << 28)
            assert got[i, j] == min(max(round(exact), -128), 127)


def test_both_kinds_of_elements_agree() -> None:
    """An adder tree and accumulators give equal sums."""
    rng = np.random.default_rng(3)
    rows, weights = rng.integers(-128, 128, (4, 32)), rng.integers(-128, 128, (8, 32))
    tree = dot_products(rows, weights, scale=777, shift=20)
    assert np.array_equal(tree, weighted_sums(rows, weights.T, scale=777, shift=20))
