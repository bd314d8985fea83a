"""Element-serial softmax: the truth in float64, and the bit-exact model of the unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_exp import exp
from golden.arith.float_round import encode
from golden.arith.float_values import QUIET_NAN, values
from hdl.arith.float_exp import Domain
from hdl.arith.float_format import BINARY16
from hdl.veda.functions.element_serial_softmax import ElementSerialSoftmaxParameters

Codes = NDArray[np.uint16]

SUM_ONE = 1 << 24
"""1 in a sum of exponentials."""


def exact_softmax(scores: Codes) -> NDArray[np.float64]:
    """Return the softmax of a head of FP16 scores in float64."""
    natural = values(scores)
    powers = np.exp(natural - natural.max())
    return powers / powers.sum()


def error_bound(scores: Codes) -> NDArray[np.float64]:
    """Return the largest error that each probability may have."""
    natural = values(scores)
    distance = np.minimum(natural.max() - natural, 32.0)
    return exact_softmax(scores) * (2.0**-8 + 2.0**-11 * distance) + 2.0**-24


def exponential(scores: Codes, maximum: int) -> Codes:
    """Return exp(x - m) of FP16 codes, the difference and the exponential rounded to FP16."""
    negated = np.full(len(scores), maximum ^ 0x8000)
    difference = float_add(BINARY16, np.asarray(scores), negated)
    return exp(difference, domain=Domain.NONPOSITIVE)


def units(exponentials: Codes) -> NDArray[np.int64]:
    """Return FP16 numbers from 0 to 1 in units of 2**-24; of anything else, such as a NaN, 0."""
    powers = values(exponentials)
    return np.where(powers <= 1, np.nan_to_num(powers) * SUM_ONE, 0).astype(np.int64)


def rescaled(total: int, factor: int) -> int:
    """Return total * factor / 2**24; each one of the factor drops what it shifts out."""
    return sum(total >> shift for shift in range(25) if factor & (SUM_ONE >> shift))


def reciprocal(total: int) -> tuple[int, int]:
    """Return the mantissa (14 fraction bits, to odd) and the exponent of 1 / total.

    Of the total, its leading sixteen bits count.
    """
    length = total.bit_length()
    divisor = total >> (length - 16)
    quotient, remainder = divmod(1 << 29, divisor)
    return quotient | (remainder > 0), length - 25


def maximum_of(scores: Codes) -> int:
    """Return the code of the largest score, +0 above -0."""
    natural = values(scores)
    largest = np.flatnonzero(natural == natural.max())
    return int(min(scores[largest]))


def softmax(scores: Codes, p: ElementSerialSoftmaxParameters) -> Codes:
    """Return the FP16 codes of a head's probabilities.

    Parameters
    ----------
    scores : numpy.ndarray
        FP16 codes, 1 to `p.capacity` of them.
    p : ElementSerialSoftmaxParameters
        Dimensions.
    """
    scores = np.asarray(scores, np.uint16)
    natural = values(scores)
    if np.isnan(natural).any() or not np.isfinite(natural.max()):
        return np.full(len(scores), QUIET_NAN, np.uint16)
    maximum, total = maximum_of(scores[: p.tile]), 0
    for start in range(0, len(scores), p.tile):
        tile = scores[start : start + p.tile]
        before, maximum = maximum, maximum_of(scores[: start + len(tile)])
        added = int(units(exponential(tile, maximum)).sum())
        factor = int(units(exponential(np.array([before]), maximum))[0])
        total = rescaled(total, factor) + added
    mantissa, exponent = reciprocal(total)
    exponentials = values(exponential(scores, maximum))
    # Exact in float64: 11 bits times 15.
    products = np.ldexp(exponentials * mantissa, -14 - exponent)
    return encode(BINARY16, products).astype(np.uint16)
