"""Heads at the edge of a threshold: the last bit of one square more or less is a vote."""

import numpy as np

from golden.veda.voting.vote_threshold import (
    LARGEST_SUM,
    Codes,
    Weights,
    rounded_quotient,
    squares,
    threshold_margin,
)
from hdl.arith.float_format import BINARY16

FEWEST = 10
"""Elements that an edge needs: some at the threshold, and those that fill up the sum of squares."""

EXACT = 6
"""Elements that bring any sum to its last bit: each leaves a 512th of what was left."""

SQUARES = squares(np.arange(0x4000))
"""Of each code below 2, in units of 2**-40."""


def edge_heads(rng: np.random.Generator, length: int, weights: Weights) -> tuple[Codes, Codes]:
    """Draw two heads of one length whose sums of squares differ by a last bit, and by a vote.

    Of the first, l * Q - 1 is the square of a whole number r, the root; of the second it is less,
    so that its root is r - 1. Both hold an element at the first one's threshold, which the second
    votes against. The threshold is of any size: they are drawn as codes, which are logarithms.

    Parameters
    ----------
    length : int
        At least `FEWEST`.
    weights : Weights
        Their deviation must not be zero.
    """
    while True:
        root, code = _edge(rng, length, weights)
        wanted = -(((1 << 28) + root**2 << 12) // -length)
        if wanted > LARGEST_SUM:
            continue
        first, second = (_filled(rng, length, total, code) for total in (wanted, wanted - 1))
        if first is not None and second is not None:
            return first, second


def _edge(rng: np.random.Generator, length: int, weights: Weights) -> tuple[int, int]:
    """Return a root at which the threshold is less than at the root before, and that threshold."""

    def threshold(root: int) -> int:
        return rounded_quotient(max(threshold_margin(root, weights), 0), length)

    (about,) = BINARY16.decode(rng.integers(1, threshold(0) + 1, 1))
    product = threshold_margin(0, weights) - about * length * 2.0**25
    root = max(1, int(2 * product / weights.deviation))
    while threshold(root) == threshold(root - 1):
        root += 1
    return root, threshold(root)


def _filled(rng: np.random.Generator, length: int, total: int, code: int) -> Codes | None:
    """Return elements whose squares have a sum, among them a code and the one below it."""
    head = np.array([code, max(code - 1, 0)] + [0] * (length - 2))
    left = total - int(SQUARES[head].sum())
    if left < 0:
        return None
    for place in range(2, length):
        share = rng.random() if place < length - EXACT else 1.0
        head[place] = np.searchsorted(SQUARES, share * left, side="right") - 1
        left -= int(SQUARES[head[place]])
    return rng.permutation(head) if left == 0 else None
