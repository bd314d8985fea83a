"""Model of dynamic key smoothing (Equation 2)."""

import numpy as np

from golden.arith.float_divide import divide
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import LARGEST, ONE
from hdl.arith.float_format import BINARY16


def smoothing_factors(keys: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of the factors of keys, shape (..., tokens, channels).

    The largest magnitudes over the tokens (Equation 2), with an axis of length 1; 1 for a channel
    of zeros. An infinity is treated as 65504, a NaN is ignored.
    """
    magnitude = np.asarray(keys).astype(np.int64) & 0x7FFF
    counted = np.where(magnitude > LARGEST + 1, 0, np.minimum(magnitude, LARGEST))
    largest = counted.max(axis=-2, keepdims=True)
    return np.where(largest == 0, ONE, largest).astype(np.uint16)


def smoothed_keys(keys: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of keys divided by their factors."""
    return divide(keys, np.broadcast_to(factors, np.shape(keys)))


def fused_queries(queries: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of queries times the factors of their keys."""
    spread = np.broadcast_to(factors, np.shape(queries))
    return float_multiply(BINARY16, queries, spread).astype(np.uint16)
