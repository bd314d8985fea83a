"""Dynamic key smoothing: the model, one head's factors after the other."""

import numpy as np

from golden.arith.float_divide import divide
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import LARGEST, ONE
from hdl.arith.float_format import BINARY16


def smoothing_factors(keys: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of the factors of keys, shape (..., tokens, channels).

    Equation 2's largest magnitudes over the tokens, with an axis of length 1; 1 for a channel of
    zeros. An infinity counts as 65504, a NaN does not count.
    """
    magnitude = np.asarray(keys).astype(np.int64) & 0x7FFF
    counted = np.where(magnitude > LARGEST + 1, 0, np.minimum(magnitude, LARGEST))
    largest = counted.max(axis=-2, keepdims=True)
    return np.where(largest == 0, ONE, largest).astype(np.uint16)


def smoothed_keys(keys: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of keys over their factors."""
    return divide(keys, np.broadcast_to(factors, np.shape(keys)))


def fused_queries(queries: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of queries times the factors of their keys."""
    spread = np.broadcast_to(factors, np.shape(queries))
    return float_multiply(BINARY16, queries, spread).astype(np.uint16)
