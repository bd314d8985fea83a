"""FP16 division and reciprocal, the model of `hdl.arith.float_divide`."""

import numpy as np

from hdl.arith.float_format import BINARY16


def divide(a: np.ndarray, b: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of correctly rounded quotients of FP16 codes.

    A float64 quotient of two FP16 numbers, rounded once more to FP16, is correctly rounded: it has
    more than twice FP16's bits, and two more (Figueroa). Subnormal results keep fewer bits, which
    only widens the gap.

    Parameters
    ----------
    a, b : numpy.ndarray
        FP16 codes.
    saturate : bool
        No infinity and no NaN, as in the hardware.
    """
    dividend, divisor = _values(a, saturate), _values(b, saturate)
    with np.errstate(all="ignore"):
        quotient = dividend / divisor
        if saturate:
            largest = float(np.finfo(np.float16).max)
            quotient = np.clip(np.where(dividend == 0, 0.0, quotient), -largest, largest)
            negative = np.signbit(dividend) ^ np.signbit(divisor)
            quotient = np.copysign(quotient, np.where(negative, -1.0, 1.0))
        codes = quotient.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(quotient), BINARY16.quiet_nan, codes).astype(np.uint16)


def reciprocal(a: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of correctly rounded reciprocals of FP16 codes."""
    return divide(np.full_like(a, BINARY16.one), a, saturate=saturate)


def _values(bits: np.ndarray, saturate: bool) -> np.ndarray:
    """Return float64 values; with `saturate` the largest exponent code is one like the others."""
    bits = np.asarray(bits).astype(np.uint16)
    if not saturate:
        return bits.view(np.float16).astype(np.float64)
    top = bits & 0x7C00 == 0x7C00
    lowered = np.where(top, bits - 0x0400, bits).astype(np.uint16)
    return lowered.view(np.float16).astype(np.float64) * np.where(top, 2.0, 1.0)
