"""FP16 reciprocal by table and multiplication, the model of `hdl.arith.takagi_reciprocal`."""

import numpy as np

from golden.arith.float_values import INFINITY, LARGEST, QUIET_NAN, values


def reciprocal(bits: np.ndarray, *, entry_bits: int = 14, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of 1/x for FP16 codes, bit-exact to the hardware.

    The product of table entry and complemented significand is truncated to 12 bits below its
    leading place, shifted to the result's exponent and rounded half up.
    """
    bits = np.asarray(bits).astype(np.int64)
    operand = values(bits, saturate=saturate)
    zero = operand == 0
    usable = np.isfinite(operand) & ~zero
    significand, exponent = np.frexp(np.where(usable, np.abs(operand), 1.0))
    product = approximate(np.rint(significand * 2048).astype(np.int64), entry_bits)
    truncated = product >> (entry_bits - 3)

    # x is 2 * significand * 2**(exponent - 1); the product is in [1/2, 1), so 2**-exponent remains.
    code = 15 - exponent.astype(np.int64)
    subnormal = np.maximum(1 - code, 0)
    rounded = ((truncated >> (subnormal + 1)) + 1) >> 1
    magnitude = rounded + (np.maximum(code - 1, 0) << 10)
    largest = LARGEST if saturate else INFINITY
    magnitude = np.where(zero, largest, np.minimum(magnitude, largest))
    magnitude = np.where(np.isinf(operand), 0, magnitude)
    result = magnitude | (bits & 0x8000)
    return np.where(np.isnan(operand), QUIET_NAN, result).astype(np.uint16)


def approximate(significand: np.ndarray, entry_bits: int) -> np.ndarray:
    """Return the product before rounding, with ``entry_bits + 10`` fraction bits.

    Parameters
    ----------
    significand : numpy.ndarray
        Integer significands from 1024 to 2047, which represent [1, 2).
    entry_bits : int
        Bits of a table entry.
    """
    middles = 1 + np.arange(64) / 64 + (2.0**-6 - 2.0**-10) / 2
    entries = np.rint(2.0**entry_bits / middles**2).astype(np.int64)
    # Every product must be below 1, even if the first entry was rounded up.
    entries[0] = min(entries[0], ((1 << (entry_bits + 10)) - 1) // (1024 + 15))
    segment = (significand >> 4) & 63
    return entries[segment] * (significand ^ 15)
