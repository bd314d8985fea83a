"""Model of the floating-point adder tree with its fixed order of additions."""

import numpy as np

from golden.arith.float_add import float_add
from hdl.arith.float_format import FloatFormat


def float_tree(
    number_format: FloatFormat, terms: np.ndarray, *, saturate: bool = False
) -> np.ndarray:
    """Return the codes of the sums over the last axis, adjacent pairs first.

    Each level adds the terms ``2 * i`` and ``2 * i + 1``; a last term without a partner goes up
    unchanged.
    """
    level = np.asarray(terms).astype(np.uint64)
    while level.shape[-1] > 1:
        pairs = level.shape[-1] // 2
        sums = float_add(
            number_format, level[..., 0 : 2 * pairs : 2], level[..., 1::2], saturate=saturate
        )
        level = np.concatenate([sums, level[..., 2 * pairs :]], axis=-1)
    return level[..., 0]
