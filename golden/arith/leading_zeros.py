"""Leading-zero count, the model of `hdl.arith.leading_zeros`."""

import numpy as np


def leading_zeros(values: np.ndarray, *, width: int) -> np.ndarray:
    """Return the zeros above the highest one in words of `width` bits (at most 63), as int64."""
    values = np.asarray(values).astype(np.int64)
    thresholds = np.int64(1) << np.arange(width, dtype=np.int64)
    return (values[..., np.newaxis] < thresholds).sum(axis=-1)
