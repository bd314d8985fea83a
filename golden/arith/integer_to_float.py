"""Model of the conversion of integers with a binary point to binary32."""

import numpy as np
from numpy.typing import NDArray


def integer_to_float(integers: NDArray[np.int64], point: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return ``integers / 2**point`` rounded once, for integers below ``2**53`` in magnitude.

    A result below the normal numbers becomes a zero of its sign.
    """
    exact = np.ldexp(np.asarray(integers, np.float64), -np.asarray(point))
    tiny = np.abs(exact) < np.finfo(np.float32).tiny
    with np.errstate(over="ignore"):
        return np.where(tiny, np.copysign(0, exact), exact).astype(np.float32)
