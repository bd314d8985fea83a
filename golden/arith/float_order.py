"""Model of the orders of floating-point codes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.arith.float_format import FloatFormat, Specials

Keys = NDArray[np.uint64]


def is_nan(number_format: FloatFormat, codes: Any) -> NDArray[np.bool_]:
    """Return whether each code is a NaN."""
    magnitudes = np.asarray(codes).astype(np.uint64) & np.uint64(number_format.magnitude_mask)
    match number_format.specials:
        case Specials.IEEE:
            return magnitudes > np.uint64(
                number_format.exponent_mask << number_format.mantissa_bits
            )
        case Specials.NAN_ONLY:
            return magnitudes == np.uint64(number_format.magnitude_mask)
        case Specials.NONE:
            return np.zeros(magnitudes.shape, bool)


def total_order(number_format: FloatFormat, codes: Any) -> Keys:
    """Return the keys of codes of a signed format in IEEE 754's total order."""
    codes = np.asarray(codes).astype(np.uint64)
    sign = np.uint64(number_format.sign_mask)
    # The all-ones code, the last NaN of negative sign, has key 0.
    descending = np.uint64(2 * number_format.sign_mask - 1) - codes
    return np.where(codes >= sign, descending, codes + sign)


def number_order(number_format: FloatFormat, codes: Any) -> Keys:
    """Return the keys of codes of a signed format: -0 equals +0, a NaN is below every number."""
    codes = np.asarray(codes).astype(np.uint64)
    positive = np.where(codes == np.uint64(number_format.sign_mask), np.uint64(0), codes)
    keys = total_order(number_format, positive)
    return np.where(is_nan(number_format, codes), np.uint64(0), keys)
