"""Model of the argmax of logits.

Logits are numbers in binary32, or their codes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint32]


def ordered(sums: NDArray[Any]) -> NDArray[np.int32]:
    """Return integers in the order of the comparison: -0 is less than 0."""
    bits = sums.view(np.int32)
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def logit_argmax(sums: NDArray[Any]) -> tuple[int, int]:
    """Return the token of the largest logit and its code; ties resolve to the lowest token."""
    token = int(ordered(sums).argmax())
    return token, int(sums.view(np.uint32)[token])


def largest_so_far(sums: NDArray[Any]) -> tuple[NDArray[np.int64], Codes]:
    """Return the argmax after each of the logits: tokens and codes."""
    order = ordered(sums)
    best = np.maximum.accumulate(order)
    # Only a logit larger than all previous ones becomes the argmax.
    first = np.concatenate([[True], order[1:] > best[:-1]])
    tokens = np.maximum.accumulate(np.where(first, np.arange(len(sums)), 0))
    return tokens, sums.view(np.uint32)[tokens]
