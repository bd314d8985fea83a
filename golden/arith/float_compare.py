"""Model of the floating-point comparison, minimum and maximum."""

import numpy as np

from golden.arith.float_round import encode, read
from hdl.arith.float_format import FloatFormat


def float_compare(
    number_format: FloatFormat, a: np.ndarray, b: np.ndarray, *, saturate: bool = False
) -> dict[str, np.ndarray]:
    """Return uint8 arrays of 0 and 1: `a` is less than, equal to, or unordered with `b`."""
    x = read(number_format, a, saturate=saturate)
    y = read(number_format, b, saturate=saturate)
    relations = {"less": x < y, "equal": x == y, "unordered": np.isnan(x) | np.isnan(y)}
    return {name: relation.astype(np.uint8) for name, relation in relations.items()}


def float_extreme(
    number_format: FloatFormat,
    a: np.ndarray,
    b: np.ndarray,
    *,
    maximum: bool,
    saturate: bool = False,
) -> np.ndarray:
    """Return the codes of the smaller or larger operand; -0 is below +0, a NaN gives a NaN."""
    x = read(number_format, a, saturate=saturate)
    y = read(number_format, b, saturate=saturate)
    less = (x < y) | ((x == y) & np.signbit(x) & ~np.signbit(y))
    codes = np.where(less ^ maximum, a, b).astype(np.uint64)
    return np.where(np.isnan(x) | np.isnan(y), encode(number_format, np.array(np.nan)), codes)
