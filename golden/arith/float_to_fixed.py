"""Model of the conversion of binary32 numbers to 16-bit integers."""

import numpy as np
from numpy.typing import NDArray

HIGHEST = (1 << 15) - 1


def float_to_fixed(
    numbers: NDArray[np.floating], point: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """Return the integers nearest to ``numbers * 2**point``, ties to even, clamped to 16 bits.

    Subnormal numbers count as zero, a NaN as the infinity of its sign.
    """
    # The conversion makes signalling NaNs quiet, of which numpy warns.
    with np.errstate(invalid="ignore"):
        wide = np.asarray(numbers, np.float64)
    wide = np.where(np.isnan(wide), np.copysign(np.inf, wide), wide)
    normal = np.where(np.abs(wide) < np.finfo(np.float32).tiny, 0, wide)
    steps = np.rint(np.ldexp(normal, point))
    return np.clip(steps, -HIGHEST - 1, HIGHEST).astype(np.int64)
