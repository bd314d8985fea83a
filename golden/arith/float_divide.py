"""FP16 division and reciprocal, the model of `hdl.arith.float_divide`."""

import numpy as np

from golden.arith.float_values import ONE, QUIET_NAN, values


def divide(a: np.ndarray, b: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of correctly rounded quotients of FP16 codes.

    A float64 quotient of two FP16 numbers, rounded again to FP16, is correctly rounded because
    float64 has more than twice the bits of FP16 plus two (Figueroa). Subnormal results keep fewer
    bits, which only increases the margin.

    Parameters
    ----------
    a, b : numpy.ndarray
        FP16 codes.
    saturate : bool
        No infinity and no NaN, as in the hardware.
    """
    dividend, divisor = values(a, saturate=saturate), values(b, saturate=saturate)
    with np.errstate(all="ignore"):
        quotient = dividend / divisor
        if saturate:
            largest = float(np.finfo(np.float16).max)
            quotient = np.clip(np.where(dividend == 0, 0.0, quotient), -largest, largest)
            negative = np.signbit(dividend) ^ np.signbit(divisor)
            quotient = np.copysign(quotient, np.where(negative, -1.0, 1.0))
        codes = quotient.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(quotient), QUIET_NAN, codes).astype(np.uint16)


def reciprocal(a: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of correctly rounded reciprocals of FP16 codes."""
    return divide(np.full_like(a, ONE), a, saturate=saturate)
