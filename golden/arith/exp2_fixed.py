"""2**x by linear interpolation, the model of `hdl.arith.exp2_fixed`."""

import numpy as np

from hdl.arith.exp2_fixed import SOFTERMAX_ARGUMENT, SOFTERMAX_RESULT
from hdl.arith.fixed_point import FixedPoint


def exp2(
    raw: np.ndarray,
    *,
    argument: FixedPoint = SOFTERMAX_ARGUMENT,
    result_format: FixedPoint = SOFTERMAX_RESULT,
    segments: int = 4,
) -> np.ndarray:
    """Return raw integers (int64) of 2**x for raw integers at or below zero.

    A segment starts at its left point on the curve, rounded to the result's fraction bits. Its
    slope leads to the right point, rounded down to ``2 * log2(segments) + 6`` fraction bits (or the
    result's, if fewer). The interpolated value is truncated, shifted right by the integer part, and
    truncated again.

    Parameters
    ----------
    raw : numpy.ndarray
        Raw arguments.
    argument, result_format : FixedPoint
        Formats of argument and result.
    segments : int
        Number of segments.
    """
    raw = np.asarray(raw).astype(np.int64)
    point, bits = argument.fraction_bits, result_format.fraction_bits
    log2_segments = int(np.log2(segments))
    slope_bits = min(2 * log2_segments + 6, bits)
    ends = np.exp2(np.arange(segments + 1) / segments)
    values = np.rint(ends[:-1] * 2.0**bits).astype(np.int64)
    slopes = np.floor(np.diff(ends) * segments * 2.0**slope_bits).astype(np.int64)

    whole, fraction = raw >> point, raw & ((1 << point) - 1)
    segment, along = np.divmod(fraction, 1 << (point - log2_segments))
    value = values[segment] + ((slopes[segment] * along << (bits - slope_bits)) >> point)
    return value >> np.minimum(-whole, 62)
