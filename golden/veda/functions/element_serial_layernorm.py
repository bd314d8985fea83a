"""Element-serial layernorm: the truth in float64, and the bit-exact model of the unit."""

from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import QUIET_NAN, values
from hdl.arith.float_format import BINARY16
from hdl.veda.functions.element_serial_layernorm import ElementSerialLayernormParameters

Codes = NDArray[np.uint16]

EPSILON = 2684
"""1e-5 in units of 2**-28."""


def exact_layernorm(elements: Codes, *, rms: bool) -> NDArray[np.float64]:
    """Return the normalised vector in float64, with eps = 1e-5."""
    x = values(elements)
    centred = x if rms else x - x.mean()
    return centred / np.sqrt(np.mean(centred * centred) + 1e-5)


def error_bound(elements: Codes, *, rms: bool) -> NDArray[np.float64]:
    """Return the error bound of each result."""
    x, exact = values(elements), exact_layernorm(elements, rms=rms)
    bound = 2.0**-9 * np.abs(exact) + 2.0**-24
    if rms:
        return bound
    mean = abs(float(x.mean()))
    variance = float(np.var(x)) + 1e-5
    # The error that the truncated mean causes in the variance adds to the mean's own rounding.
    share = min(2.0**-22 * mean / variance, 1.0)
    rounding = (2.0**-10 * mean + 2.0**-23) / np.sqrt(variance)
    return bound + rounding + share * np.abs(exact)


def sums(elements: Codes) -> tuple[int, int]:
    """Return the sum in units of 2**-24, and the sum of floored squares in units of 2**-28."""
    integers = [int(value * 2.0**24) for value in values(elements)]
    return sum(integers), sum(integer * integer >> 20 for integer in integers)


def mean_code(magnitude: int, *, negative: bool) -> int:
    """Return a mean's magnitude in units of 2**-24 as an FP16 code."""
    return BINARY16.from_fraction(Fraction(magnitude, 1 << 24)) | negative << 15


def scale_code(variance: int) -> int:
    """Return 1 / sqrt(variance + 1e-5) as an FP16 code, for a variance in units of 2**-28.

    The root has 16 binary digits, its reciprocal 15, of which at most the first is 0.
    """
    radicand = variance + EPSILON
    pairs = (radicand.bit_length() + 1) // 2
    shift = 32 - 2 * pairs
    root = isqrt(radicand << shift if shift >= 0 else radicand >> -shift)
    quotient, remainder = divmod(1 << 29, root)
    # One more digit represents all that was truncated.
    reciprocal = Fraction(2 * quotient + (remainder > 0), 1 << 15)
    return BINARY16.from_fraction(reciprocal * Fraction(2) ** (15 - pairs))


def layernorm(elements: Codes, p: ElementSerialLayernormParameters) -> Codes:
    """Return the FP16 codes of a normalised vector.

    Parameters
    ----------
    elements : numpy.ndarray
        FP16 codes, 1 to `p.width` of them.
    p : ElementSerialLayernormParameters
        Dimensions of the layernorm.
    """
    elements = np.asarray(elements, np.uint16)
    if not np.isfinite(elements.view(np.float16)).all():
        return np.full(len(elements), QUIET_NAN, np.uint16)
    total, squares = sums(elements)
    magnitude = 0 if p.rms else abs(total) // len(elements)
    variance = max(0, squares // len(elements) - (magnitude * magnitude >> 20))
    differences = elements.astype(np.uint64)
    if not p.rms:
        negated = mean_code(magnitude, negative=total < 0) ^ 0x8000
        differences = float_add(BINARY16, differences, np.full(len(elements), negated))
    scale = np.full(len(elements), scale_code(variance))
    return float_multiply(BINARY16, differences, scale).astype(np.uint16)
