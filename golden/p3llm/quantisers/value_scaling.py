"""Model of the second-level scaling of the values' scales, in FP16 operations."""

import numpy as np

from golden.arith.float_divide import divide
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import LARGEST, ONE
from hdl.arith.float_format import BINARY16


def value_scaling(scales: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scaled probabilities and the largest scales.

    Parameters
    ----------
    scales : numpy.ndarray
        FP16 codes of the scales of a head's cached values, shape (..., tokens).
    probabilities : numpy.ndarray
        FP16 codes, of that shape.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        FP16 codes (uint16) of the products, and of the largest scales with an axis of length 1.
    """
    scales = np.asarray(scales).astype(np.uint16)
    magnitude = scales & 0x7FFF
    counted = np.where(magnitude > LARGEST + 1, 0, np.minimum(magnitude, LARGEST))
    largest = counted.max(axis=-1, keepdims=True).astype(np.uint16)
    divisor = np.broadcast_to(np.where(largest == 0, ONE, largest), scales.shape)
    ratios = divide(scales, divisor)
    return float_multiply(BINARY16, ratios, probabilities).astype(np.uint16), largest
