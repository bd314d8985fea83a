"""A walk through slices: where it is in each of its rounds, by multiplication."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOOPS = ("outer", "middle", "inner")


def slice_walk(walk: Mapping[str, Any], bits: int) -> NDArray[np.int64]:
    """Return the places of a walk, one a row.

    Parameters
    ----------
    walk : Mapping[str, Any]
        Its `base`, and of each loop the `rounds` and the `stride`.
    bits : int
        Of a place.

    Returns
    -------
    numpy.ndarray
        int64, shape (places, 4): the place, the middle loop's round, whether the inner loop pauses
        and whether the walk ends.
    """
    rounds, strides = ([walk[name][what] for name in LOOPS] for what in ("rounds", "stride"))
    rows = []
    for number in product(*map(range, rounds)):
        place = walk["base"] + sum(n * stride for n, stride in zip(number, strides, strict=True))
        pauses = number[2] == rounds[2] - 1
        ends = all(n == count - 1 for n, count in zip(number, rounds, strict=True))
        rows.append((place % (1 << bits), number[1], pauses, ends))
    return np.array(rows, np.int64)
