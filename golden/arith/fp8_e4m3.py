"""FP8 E4M3 codes, the model of `hdl.arith.fp8_e4m3`, and a quantiser with scales."""

import numpy as np

from golden.arith.float_values import QUIET_NAN
from golden.arith.rounding import rounded_right
from hdl.arith.float_format import FP8_E4M3FN
from hdl.arith.fp8_e4m3 import Overflow

LARGEST = 448.0
"""The largest E4M3 number."""


def encode(bits: np.ndarray, overflow: Overflow = Overflow.SATURATE) -> np.ndarray:
    """Return E4M3 codes (uint8) of FP16 codes, rounded to nearest, ties to even.

    The number is expressed as an integer multiple of the smallest FP16 subnormal, 2**-24, and
    rounded to the step of its binade, which is at least 2**-9.
    """
    bits = np.asarray(bits).astype(np.int64)
    exponent = (bits >> 10) & 31
    mantissa = bits & 1023
    steps = (mantissa | ((exponent > 0).astype(np.int64) << 10)) << np.maximum(exponent - 1, 0)
    # Above FP16 exponent code 9 the step grows with the binade, for 4 significant bits.
    drop = 15 + np.maximum(exponent - 9, 0)
    significand = rounded_right(steps, drop)
    magnitude = significand + (np.maximum(exponent - 9, 0) << 3)
    beyond = magnitude > FP8_E4M3FN.max_finite
    limit = FP8_E4M3FN.max_finite if overflow is Overflow.SATURATE else 0x7F
    nan = (exponent == 31) & (mantissa != 0)
    magnitude = np.where(nan, 0x7F, np.where(beyond | (exponent == 31), limit, magnitude))
    return (magnitude | ((bits >> 15) << 7)).astype(np.uint8)


def decode(codes: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of E4M3 codes; exact; a NaN becomes 0x7E00 with its sign."""
    codes = np.asarray(codes).astype(np.int64)
    values = FP8_E4M3FN.decode(codes & 0x7F)
    with np.errstate(invalid="ignore"):
        magnitude = values.astype(np.float16).view(np.uint16)
    magnitude = np.where(codes & 0x7F == 0x7F, QUIET_NAN, magnitude)
    return (magnitude | ((codes >> 7) << 15)).astype(np.uint16)


def operand(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return signed significands, shifts and NaN flags.

    ``value = significand * 2**(shift - 9)``; the significand of a NaN is 0.
    """
    codes = np.asarray(codes).astype(np.int64)
    exponent = (codes >> 3) & 15
    nan = codes & 0x7F == 0x7F
    magnitude = np.where(nan, 0, (codes & 7) + np.where(exponent > 0, 8, 0))
    return np.where(codes >> 7, -magnitude, magnitude), np.maximum(exponent, 1) - 1, nan


def quantise(values: np.ndarray, *, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Quantise to E4M3 with one scale per vector: ``scale = max(max|x| / 448, 1e-6)``.

    P3-LLM section 4.1: one scale per token for activations, per head vector for queries.

    Parameters
    ----------
    values : numpy.ndarray
        Finite floats; the arithmetic is float32.
    axis : int
        Axis along which elements share one scale.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        E4M3 codes (uint8), and float32 scales with an axis of length 1.
    """
    values = np.asarray(values, np.float32)
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scale = np.maximum(largest / np.float32(LARGEST), np.float32(1e-6))
    return nearest_code(values / scale), scale


def nearest_code(values: np.ndarray) -> np.ndarray:
    """Return the codes nearest to finite floats, ties to even, clamped to 448."""
    values = np.asarray(values, np.float64)
    magnitude = np.minimum(np.abs(values), LARGEST)
    _, exponent = np.frexp(np.maximum(magnitude, 2.0**-6))
    step = exponent - 4
    significand = np.rint(np.ldexp(magnitude, -step)).astype(np.int64)
    code = significand + ((step + 9).astype(np.int64) << 3)
    return (code | (np.signbit(values).astype(np.int64) << 7)).astype(np.uint8)
