"""Attention scores as the array and its requantisers compute them: exact sums, rounded once."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.int_symmetric import quantise
from golden.arith.requantiser import requantised, scale_and_shift

Integers = NDArray[np.int64]

SCORE_FRACTION = 10
"""Bits below the binary point of a score, Q6.10."""


def quantised_scores(
    queries: NDArray[np.floating], keys: NDArray[np.floating]
) -> tuple[Integers, Integers, int, int, Integers]:
    """Return 16-bit operands, the scale and shift of their scores, and the scores.

    Parameters
    ----------
    queries : numpy.ndarray
        [heads, tokens, head size], the query heads that share the keys.
    keys : numpy.ndarray
        [tokens, head size].

    Returns
    -------
    tuple
        Queries and keys as integers, scale, shift, and q.k / sqrt(head size) in Q6.10, int64
        [heads, tokens, tokens].
    """
    moving, query_step = quantise(queries, bits=16, axis=None)
    stationary, key_step = quantise(keys, bits=16, axis=None)
    moving, stationary = moving.astype(np.int64), stationary.astype(np.int64)
    step = float(query_step.item()) * float(key_step.item()) / np.sqrt(keys.shape[1])
    scale, shift = scale_and_shift(step * (1 << SCORE_FRACTION))
    scores = requantised(moving @ stationary.T, scale, shift)
    return moving, stationary, scale, shift, scores
