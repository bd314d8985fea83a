"""Arrays of fixed-point numbers, the model of `hdl.arith.fixed_point`."""

import numpy as np

from golden.arith.rounding import rounded, rounded_right
from golden.arith.saturating_add import saturate
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.rounding import Rounding


def quantise(
    values: np.ndarray, target: FixedPoint, rounding: Rounding = Rounding.HALF_EVEN
) -> np.ndarray:
    """Return raw integers (int64) of float values: rounded, then clamped to the range.

    Parameters
    ----------
    values : numpy.ndarray
        Any float type; no NaN.
    target : FixedPoint
        Format of at most 53 bits, so that every step is exact in float64.
    rounding : Rounding
        Rounding rule.
    """
    steps = rounded(np.ldexp(np.asarray(values, np.float64), target.fraction_bits), rounding)
    low = float(target.minimum / target.resolution)
    high = float(target.maximum / target.resolution)
    return np.clip(steps, low, high).astype(np.int64)


def to_float(raw: np.ndarray, source: FixedPoint) -> np.ndarray:
    """Return the values of raw integers, exact in float64 for at most 53 bits."""
    return np.ldexp(np.asarray(raw).astype(np.float64), -source.fraction_bits)


def convert(
    raw: np.ndarray,
    source: FixedPoint,
    target: FixedPoint,
    rounding: Rounding = Rounding.HALF_EVEN,
) -> tuple[np.ndarray, np.ndarray]:
    """Return raw integers in another format, and a mask of those that the clamp changed.

    Parameters
    ----------
    raw : numpy.ndarray
        Raw integers of the source format; they must fit in int64 when aligned to the target's
        binary point.
    source, target : FixedPoint
        Format of the operands and of the results.
    rounding : Rounding
        Rounding rule for bits below the target's resolution.
    """
    shift = source.fraction_bits - target.fraction_bits
    aligned = np.asarray(raw).astype(np.int64) << max(-shift, 0)
    aligned = rounded_right(aligned, max(shift, 0), rounding)
    result = saturate(aligned, width=target.width, signed=target.signed)
    return result, result != aligned
