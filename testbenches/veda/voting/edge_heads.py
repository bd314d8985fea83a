"""Heads at the edge of a threshold: one unit in the last place of a square changes a vote."""

import numpy as np

from golden.veda.voting.vote_threshold import (
    LARGEST_SUM,
    Codes,
    ThresholdCoefficients,
    rounded_quotient,
    squares,
    threshold_margin,
)
from hdl.arith.float_format import BINARY16

FEWEST = 10
"""Minimum number of elements of an edge: two at the threshold, the others fill up the sum."""

EXACT = 6
"""Elements that fill up any sum exactly: each reduces the remainder to a 512th."""

SQUARES = squares(np.arange(0x4000))
"""Of each code below 2, in units of 2**-40."""


def edge_heads(
    rng: np.random.Generator, length: int, coefficients: ThresholdCoefficients
) -> tuple[Codes, Codes]:
    """Return two random heads whose sums of squares differ by one unit, and in a vote.

    For the first head, l * Q - 1 is the square of an integer r, the root; for the second it is
    less, so that its root is r - 1. Both heads contain an element at the first one's threshold,
    against which the second head votes. Thresholds have all magnitudes: they are random codes,
    which are logarithmic.

    Parameters
    ----------
    length : int
        At least `FEWEST`.
    coefficients : ThresholdCoefficients
        Coefficients of the threshold; the one of the deviation must not be zero.
    """
    while True:
        root, code = _edge(rng, length, coefficients)
        wanted = -(((1 << 28) + root**2 << 12) // -length)
        if wanted > LARGEST_SUM:
            continue
        first, second = (_filled(rng, length, total, code) for total in (wanted, wanted - 1))
        if first is not None and second is not None:
            return first, second


def _edge(
    rng: np.random.Generator, length: int, coefficients: ThresholdCoefficients
) -> tuple[int, int]:
    """Return a root whose threshold is below that of the previous root, and that threshold."""

    def threshold(root: int) -> int:
        return rounded_quotient(max(threshold_margin(root, coefficients), 0), length)

    (about,) = BINARY16.decode(rng.integers(1, threshold(0) + 1, 1))
    product = threshold_margin(0, coefficients) - about * length * 2.0**25
    root = max(1, int(2 * product / coefficients.deviation))
    while threshold(root) == threshold(root - 1):
        root += 1
    return root, threshold(root)


def _filled(rng: np.random.Generator, length: int, total: int, code: int) -> Codes | None:
    """Return elements whose squares have a given sum, among them a code and the code below it."""
    head = np.array([code, max(code - 1, 0)] + [0] * (length - 2))
    left = total - int(SQUARES[head].sum())
    if left < 0:
        return None
    for place in range(2, length):
        share = rng.random() if place < length - EXACT else 1.0
        head[place] = np.searchsorted(SQUARES, share * left, side="right") - 1
        left -= int(SQUARES[head[place]])
    return rng.permutation(head) if left == 0 else None
