"""Model of the argmax over rows of numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_order import number_order
from hdl.arith.float_format import FloatFormat
from hdl.nonlinear.argmax import ArgmaxParameters

Integers = NDArray[np.int64]


def argmax(number_format: FloatFormat, codes: Any) -> tuple[int, int]:
    """Return the index of the largest number of a row of codes, and its code.

    Ties resolve to the lowest index; -0 equals +0, whose code is returned. A NaN is below every
    number. If all are NaNs, the index is 0 and the code that of the quiet NaN.
    """
    keys = number_order(number_format, codes)
    index = int(keys.argmax())
    return index, int(_codes(number_format, keys[index]))


def argmax_of_slices(p: ArgmaxParameters, slices: dict[str, Any]) -> dict[str, Integers]:
    """Return the result of each slice: the argmax of its row so far.

    Parameters
    ----------
    p : ArgmaxParameters
        Dimensions of the unit.
    slices : dict
        Fields of `ArgmaxParameters.slice_layout`; the first axis is time.

    Returns
    -------
    dict
        Fields of `ArgmaxParameters.result_layout`.
    """
    count = len(slices["first"])
    context = np.asarray(slices.get("context", np.zeros(count, int)))
    present = np.arange(p.lanes) < np.asarray(slices["count"])[:, np.newaxis]
    keys = np.where(present, _keys(p, slices["values"]), np.uint64(0))
    index, best = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    for own in (np.flatnonzero(context == one) for one in np.unique(context)):
        starts = np.flatnonzero(np.asarray(slices["first"])[own]).tolist()
        for start, end in zip(starts, [*starts[1:], len(own)], strict=True):
            row = keys[own[start:end]].reshape(-1)
            largest = np.maximum.accumulate(row)
            # Only a key above all earlier ones moves the argmax.
            moves = np.concatenate([[True], row[1:] > largest[:-1]])
            so_far = np.maximum.accumulate(np.where(moves, np.arange(len(row)), 0))
            index[own[start:end]] = so_far[p.lanes - 1 :: p.lanes]
            best[own[start:end]] = largest[p.lanes - 1 :: p.lanes]
    return {"index": index, "value": _values(p, best), "last": np.asarray(slices["last"])}


def _keys(p: ArgmaxParameters, values: Any) -> NDArray[np.uint64]:
    """Return the keys of values: the least value has key 0."""
    if p.number_format is not None:
        return number_order(p.number_format, values)
    return np.asarray(values, np.int64).astype(np.uint64) + np.uint64(1 << p.width - 1)


def _values(p: ArgmaxParameters, keys: NDArray[np.uint64]) -> Integers:
    """Return the values of keys."""
    if p.number_format is not None:
        return _codes(p.number_format, keys).astype(np.int64)
    return (keys - np.uint64(1 << p.width - 1)).astype(np.int64)


def _codes(number_format: FloatFormat, keys: Any) -> NDArray[np.uint64]:
    """Return the codes of keys of the number order."""
    sign = np.uint64(number_format.sign_mask)
    codes = keys ^ np.where(keys >= sign, sign, sign + np.uint64(number_format.magnitude_mask))
    nan = number_format.quiet_nan
    return codes if nan is None else np.where(keys == 0, np.uint64(nan), codes)
