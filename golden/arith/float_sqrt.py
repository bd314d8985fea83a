"""FP16 square root and its reciprocal, the model of `hdl.arith.float_sqrt`."""

import numpy as np

from golden.arith.float_values import INFINITY, LARGEST, QUIET_NAN, values


def sqrt(bits: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of correctly rounded square roots of FP16 codes.

    A float64 root of an FP16 number, rounded again, is correctly rounded because float64 has more
    than twice the bits of FP16 plus two (Figueroa).
    """
    operand = values(bits, saturate=saturate)
    with np.errstate(invalid="ignore"):
        root = np.sqrt(np.where(saturate & (operand < 0), 0.0, operand))
        codes = root.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(root), QUIET_NAN, codes).astype(np.uint16)


def reciprocal_sqrt(bits: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of 1/sqrt(x) for FP16 codes, bit-exact to the hardware.

    ``x = s * 4**p`` with s in [1, 4). The binade of s and its upper five fraction bits select a
    segment of ``2 / sqrt(s)`` with 12 fraction bits, and the lower five interpolate in it. The sum
    is rounded half up to ten bits.
    """
    bits = np.asarray(bits).astype(np.int64)
    operand = values(bits, saturate=saturate)
    negative = bits >> 15 == 1
    zero = operand == 0
    nan = np.isnan(operand) | (negative & ~zero)
    usable = np.isfinite(operand) & ~zero
    magnitude = np.where(usable, np.abs(operand), 1.0)

    significand, exponent = np.frexp(magnitude)
    fraction = np.rint((2 * significand - 1) * 1024).astype(np.int64)
    power, binade = np.divmod(exponent.astype(np.int64) - 1, 2)
    heights, slopes = lines()
    segment, along = fraction >> 5, fraction & 31
    value = heights[binade, segment] - ((slopes[binade, segment] * along) >> 3)
    rounded = ((value >> 1) + 1) >> 1
    code = rounded + ((13 - power) << 10)

    code = np.where(np.isinf(operand), 0, code)
    if saturate:
        return np.where(zero | negative, LARGEST, code).astype(np.uint16)
    code = np.where(zero, INFINITY | (bits & 0x8000), code)
    return np.where(nan, QUIET_NAN, code).astype(np.uint16)


def lines() -> tuple[np.ndarray, np.ndarray]:
    """Return values (12 fraction bits), negated slopes (5 fraction bits) of 2 x 32 segments.

    Row 0 is for s in [1, 2), row 1 for s in [2, 4) relative to s / 2. A segment of ``2 / sqrt(s)``
    has the slope of the curve at its centre and passes there halfway between the curve and its
    chord. The value is that at the segment's left end.
    """
    places = 1 + (2 * np.arange(32)[:, np.newaxis] + np.arange(3)) / 64
    curve = 2 / np.sqrt(np.array([1.0, 2.0])[:, np.newaxis, np.newaxis] * places)
    left, centre, right = np.moveaxis(curve, -1, 0)
    slopes = np.rint(centre / (2 * places[:, 1]) * 32)
    middle = (centre + (left + right) / 2) / 2
    heights = np.rint((middle + slopes / 32 / 64) * 4096)
    return heights.astype(np.int64), slopes.astype(np.int64)
