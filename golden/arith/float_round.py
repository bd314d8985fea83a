"""Correct rounding of exact results, the last step of every floating-point model.

The models compute in float64, which represents each operand and each product of two binary32
numbers exactly. A sum of two such numbers may need more bits. It is rounded to odd, which preserves
the information that a second rounding to a format of at most 51 significand bits needs (Boldo and
Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57(4), 2008). The adders in
hardware align, count and shift, so models and hardware share no step.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from hdl.arith.float_format import FloatFormat, Specials


def read(number_format: FloatFormat, bits: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return the values of an operand's codes, as the operator interprets them, in float64.

    With `saturate` every code is a number: the largest exponent code is one more binade.
    """
    return (_without_specials(number_format) if saturate else number_format).decode(bits)


@cache
def _without_specials(number_format: FloatFormat) -> FloatFormat:
    """Return the format in which every code is a number; cached with its table of values."""
    return replace(number_format, specials=Specials.NONE)


def encode(number_format: FloatFormat, values: np.ndarray, *, saturate: bool = False) -> np.ndarray:
    """Return the codes nearest to float64 values, ties to even.

    Parameters
    ----------
    number_format : FloatFormat
        A signed format of at most 51 significand bits.
    values : numpy.ndarray
        Finite numbers, infinities and NaNs; a NaN gives the format's quiet NaN.
    saturate : bool
        A value beyond the largest finite number becomes that number. Otherwise it becomes infinity,
        or NaN if the format has no infinity.

    Returns
    -------
    numpy.ndarray
        uint64 of the same shape.
    """
    values = np.asarray(values, np.float64)
    if number_format.native is not None and not saturate:
        with np.errstate(over="ignore", invalid="ignore"):
            return native_codes(number_format, values.astype(number_format.native))
    codes = np.ascontiguousarray(values).view(np.int64)
    exponent = (codes >> 52) & 0x7FF
    significand = (codes & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    power = np.maximum(exponent, 1) - 1075
    # The weight of the result's last place: that of its binade, or of the subnormals.
    binade = np.maximum(power + 52 - number_format.mantissa_bits, number_format.smallest_power)
    # A value more than a binade below the last place only needs to compare as less than half of it.
    drop = np.minimum(binade - power, 54)
    kept = significand >> drop
    rest = significand & ((np.int64(1) << drop) - 1)
    half = np.int64(1) << (drop - 1)
    kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
    magnitude = ((binade - number_format.smallest_power) << number_format.mantissa_bits) + kept
    beyond = number_format.infinity
    if saturate or number_format.specials is Specials.NONE:
        beyond = number_format.max_finite
    elif beyond is None:
        beyond = number_format.quiet_nan
    over = (magnitude > number_format.max_finite) | np.isinf(values)
    magnitude = np.where(over, beyond, magnitude)
    result = magnitude | np.where(codes < 0, number_format.sign_mask, 0)
    if number_format.quiet_nan is not None:
        result = np.where(np.isnan(values), number_format.quiet_nan, result)
    return result.astype(np.uint64)


def native_numbers(number_format: FloatFormat, bits: np.ndarray) -> np.ndarray:
    """Return codes as numbers of the corresponding numpy type.

    numpy's sums of them are rounded once: FP32 sums by the processor, and FP16 sums via FP32. FP32
    has twice the digits plus two, so its own rounding is innocuous (Figueroa, "When is double
    rounding innocuous?", SIGNUM 30(3), 1995).
    """
    return np.asarray(bits).astype(f"uint{number_format.width}").view(f"float{number_format.width}")


def native_codes(number_format: FloatFormat, numbers: np.ndarray) -> np.ndarray:
    """Return the codes of numbers of a numpy type; every NaN becomes the quiet NaN."""
    bits = numbers.view(f"uint{number_format.width}").astype(np.uint64)
    return np.where(np.isnan(numbers), np.uint64(number_format.quiet_nan or 0), bits)


def sum_to_odd(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return float64 sums, exact or, where inexact, rounded to the neighbour with an odd code."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = x + y
        part = total - x
        error = (x - (total - part)) + (y - part)
    codes = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (codes & 1 == 0)
    # The next code is further from zero; the exact sum lies on the side given by the error's sign.
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, codes + step, codes).view(np.float64)
