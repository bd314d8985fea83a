"""Slices of a linear layer's sums: each sample's sums, concatenated and cut into slices."""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint16]


def sum_slices(sums: Codes, rest: int, head_size: int) -> Codes:
    """Return a layer's slices [slices * batch, head_size]: for each slice index all samples.

    Parameters
    ----------
    sums : array [groups, batch, units]
        Sums in the order of the stream.
    rest : int
        Number of sums in the last group. A last slice that the sums do not fill is filled up with
        the surplus elements of that group, and with 0.
    head_size : int
        Sums per slice.
    """
    groups, batch, units = sums.shape
    slices = -(-((groups - 1) * units + rest) // head_size)
    rows = sums.swapaxes(0, 1).reshape(batch, -1)
    filled = np.concatenate([rows, np.zeros((batch, head_size), np.uint16)], axis=1)
    cut = filled[:, : slices * head_size].reshape(batch, slices, head_size)
    return cut.swapaxes(0, 1).reshape(-1, head_size)
