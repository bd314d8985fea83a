"""FP16 exponential, the model of `hdl.arith.float_exp`."""

from functools import cache

import numpy as np

from golden.arith.float_values import INFINITY, LARGEST, QUIET_NAN
from hdl.arith.float_exp import Domain

LOG2_E = 23637
"""log2(e) * 2**14, truncated."""


def exp(bits: np.ndarray, *, domain: Domain = Domain.ALL, saturate: bool = False) -> np.ndarray:
    """Return FP16 codes (uint16) of exp(x) for FP16 codes, bit-exact to the hardware.

    ``t = |x| * log2(e)`` is truncated to 12 fraction bits and complemented for negative x. The
    upper six fraction bits of t select a segment with 13 fraction bits, and the lower six
    interpolate in it. The sum is shifted to the result's exponent and rounded half up.
    """
    bits = np.asarray(bits).astype(np.int64)
    exponent = (bits >> 10) & 31
    mantissa = bits & 1023
    negative = (bits >> 15 == 1) | (domain is Domain.NONPOSITIVE)
    nan = (exponent == 31) & (mantissa != 0)

    # |x| is significand * 2**(exponent - 25); the product has 14 fraction bits more.
    significand = mantissa | ((exponent > 0).astype(np.int64) << 10)
    down = 25 + 14 - 12 - np.minimum(np.maximum(exponent, 1), 20)
    magnitude = (significand * LOG2_E) >> down
    t = np.where(negative, ~magnitude, magnitude)
    power, fraction = t >> 12, t & 4095

    values, slopes = lines()
    segment, along = fraction >> 6, fraction & 63
    value = values[segment] + ((slopes[segment] * along) >> 3)

    # Below 2**-14 the weight of the last place is constant.
    last_place = np.maximum(power, -14)
    drop = np.minimum(3 + last_place - power, 62)
    rounded = ((value >> (drop - 1)) + 1) >> 1
    code = rounded + ((last_place + 14) << 10)
    beyond = (code >= INFINITY) | (exponent >= 20)
    code = np.where(exponent >= 20, 0, np.minimum(code, INFINITY))
    limit = LARGEST if saturate else INFINITY
    code = np.where(beyond & ~negative, limit, code)
    return np.where(nan & (not saturate), QUIET_NAN, code).astype(np.uint16)


@cache
def lines() -> tuple[np.ndarray, np.ndarray]:
    """Return values (13 fraction bits), slopes (4 fraction bits) of 64 segments of 2**f on [0, 1).

    The slope is that of the curve at the segment's centre. There the segment passes halfway between
    the curve and its chord. The value is taken half a step of f to the right of the segment's left
    end.
    """
    left, centre, right = (np.exp2((2 * np.arange(64) + half) / 128) for half in range(3))
    slopes = np.rint(np.log(2) * centre * 16)
    middle = (centre + (left + right) / 2) / 2
    first = middle - slopes / 16 * (1 / 128 - 1 / 8192)
    return np.rint(first * 8192).astype(np.int64), slopes.astype(np.int64)
