"""Slices of a linear layer's sums: each sample's rows behind each other, cut at a slice's size."""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint16]


def sum_slices(sums: Codes, rest: int, head_size: int) -> Codes:
    """Return a layer's slices [slices * batch, head_size], slice by slice, in each by sample.

    Parameters
    ----------
    sums : array [groups, batch, units]
        As they come.
    rest : int
        Of the last group; what stands behind them is no sum. A last slice that the sums do not fill
        is filled up with it, and with 0.
    head_size : int
        Sums of a slice.
    """
    groups, batch, units = sums.shape
    slices = -(-((groups - 1) * units + rest) // head_size)
    rows = sums.swapaxes(0, 1).reshape(batch, -1)
    filled = np.concatenate([rows, np.zeros((batch, head_size), np.uint16)], axis=1)
    cut = filled[:, : slices * head_size].reshape(batch, slices, head_size)
    return cut.swapaxes(0, 1).reshape(-1, head_size)
