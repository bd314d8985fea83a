"""Model of the floating-point adder tree with its fixed order of additions."""

from collections.abc import Callable
from functools import partial

import numpy as np

from golden.arith.float_add import float_add
from golden.arith.float_round import native_codes, native_numbers
from hdl.arith.float_format import FloatFormat


def float_tree(
    number_format: FloatFormat, terms: np.ndarray, *, saturate: bool = False
) -> np.ndarray:
    """Return the codes of the sums over the last axis, adjacent pairs first.

    Each level adds the terms ``2 * i`` and ``2 * i + 1``; an unpaired last term passes to the next
    level unchanged.
    """
    if number_format.native is not None and not saturate:
        with np.errstate(over="ignore", invalid="ignore"):
            total = _summed(native_numbers(number_format, terms), np.add)
        return native_codes(number_format, total)
    level = np.asarray(terms).astype(np.uint64)
    return _summed(level, partial(float_add, number_format, saturate=saturate))


def _summed(level: np.ndarray, add: Callable[..., np.ndarray]) -> np.ndarray:
    """Return the sums over the last axis, added pairwise."""
    while level.shape[-1] > 1:
        pairs = level.shape[-1] // 2
        sums = add(level[..., 0 : 2 * pairs : 2], level[..., 1::2])
        level = np.concatenate([sums, level[..., 2 * pairs :]], axis=-1)
    return level[..., 0]
