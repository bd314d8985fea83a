"""The norms' epsilon in a row's own steps."""

import numpy as np
from numpy.typing import NDArray

from golden.llm.layers import EPSILON

MOST = (1 << 32) - 1
"""What a norm takes at most."""


def epsilon_steps(width: int, point: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``width * epsilon`` in squared steps, of rows of integers with these fraction bits.

    It is rounded to nearest, and at most `MOST`.
    """
    steps = np.rint(np.ldexp(width * EPSILON, 2 * point))
    return np.minimum(steps, MOST).astype(np.int64)
