"""Rows and slices: common functions of the testbenches of the special functions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from testbenches.unit_bench import Fields


def full_rate_cycles(counts: Sequence[int], *, rows: int, latency: int, read_latency: int) -> int:
    """Return the cycles to the last result of rows of `counts` slices without stalls.

    Parameters
    ----------
    counts : Sequence[int]
        Slices per row.
    rows : int
        Maximum number of rows in flight; a row counts until its last slice is read.
    latency : int
        Cycles from a row's last slice to its first result.
    read_latency : int
        Part of the latency that follows the read of the first slice in the row buffer.
    """
    taken, read = -1, -1
    ends: list[int] = []
    for number, count in enumerate(counts):
        free = ends[number - rows] if number >= rows else -1
        taken = max(taken, free) + count
        read = max(taken + latency - read_latency - 1, read) + count
        ends.append(read)
    return read + read_latency + 1


def sliced(rows: Sequence[NDArray[np.int64]], lanes: int) -> Fields:
    """Cut rows of any length into slices; pad the last slice with random values to be ignored."""
    counts = [-(-len(row) // lanes) for row in rows]
    noise = np.random.default_rng(len(rows)).integers(-(1 << 15), 1 << 15, (sum(counts), lanes))
    values, keep = noise.reshape(-1), np.zeros(sum(counts) * lanes, np.int64)
    starts = np.cumsum([0, *counts])
    for row, start in zip(rows, starts[:-1] * lanes, strict=True):
        values[start : start + len(row)] = row
        keep[start : start + len(row)] = 1
    last = np.zeros(sum(counts), np.int64)
    last[starts[1:] - 1] = 1
    keep = keep.reshape(-1, lanes)
    return {"values": values.reshape(-1, lanes), "keep": keep, "last": last}
