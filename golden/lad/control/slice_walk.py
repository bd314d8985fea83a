"""Addresses of three nested loops, computed by multiplication."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOOPS = ("outer", "middle", "inner")


def slice_walk(loops: Mapping[str, Any], bits: int) -> NDArray[np.int64]:
    """Return the addresses of a sequence, one per row.

    Parameters
    ----------
    loops : Mapping[str, Any]
        Its `base`, and the `rounds` and the `stride` of each loop.
    bits : int
        Bits of an address.

    Returns
    -------
    numpy.ndarray
        int64, shape (addresses, 4): address, round of the middle loop, and flags for the last round
        of the inner loop and of all loops.
    """
    rounds, strides = ([loops[name][what] for name in LOOPS] for what in ("rounds", "stride"))
    rows = []
    for number in product(*map(range, rounds)):
        address = loops["base"] + sum(n * stride for n, stride in zip(number, strides, strict=True))
        inner_ends = number[2] == rounds[2] - 1
        ends = all(n == count - 1 for n, count in zip(number, rounds, strict=True))
        rows.append((address % (1 << bits), number[1], inner_ends, ends))
    return np.array(rows, np.int64)
