"""Model of the conversion of the norms' epsilon to steps of a row."""

import numpy as np
from numpy.typing import NDArray

from hdl.model_shape import NORM_EPSILON

MOST = (1 << 32) - 1
"""Maximum operand of a norm."""


def epsilon_steps(width: int, point: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``width * epsilon`` in squared steps of rows with these fraction bits.

    The result is rounded to nearest, and at most `MOST`.
    """
    steps = np.rint(np.ldexp(width * NORM_EPSILON, 2 * point))
    return np.minimum(steps, MOST).astype(np.int64)
