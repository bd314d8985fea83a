"""Element-serial softmax: the truth in float64, and the bit-exact model of the unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_exp2 import exp2
from golden.arith.float_round import encode
from golden.arith.float_values import QUIET_NAN, values
from hdl.arith.float_format import BINARY16
from hdl.veda.functions.element_serial_softmax import ElementSerialSoftmaxParameters

Codes = NDArray[np.uint16]
Integers = NDArray[np.int64]

SUM_ONE = 1 << 24
"""The number 1 in a sum of exponentials."""

FAR = 31
"""The largest distance of powers of two; it represents all larger ones, too."""

LOG2_E = float(np.log2(np.e))
"""Factor of the queries by which a softmax to the base 2 equals one to the base e."""


def exact_softmax(scores: Codes) -> NDArray[np.float64]:
    """Return the softmax to the base 2 of a head of FP16 scores in float64."""
    binary = values(scores)
    powers = np.exp2(binary - binary.max())
    return powers / powers.sum()


def error_bound(scores: Codes) -> NDArray[np.float64]:
    """Return the error bound of each probability."""
    return exact_softmax(scores) * 2.0**-8 + 2.0**-24


def distances(whole: Integers, numbers: NDArray[np.bool_]) -> tuple[Integers, NDArray[np.bool_]]:
    """Return each power's distance from the largest before it, at most `FAR`, and if it is above.

    A head's first number rises by `FAR`; NaN and infinities are as far below.
    """
    lowest = -(1 << 20)
    known = np.where(numbers, whole, lowest)
    largest = np.maximum.accumulate(known, axis=-1)
    before = np.full_like(largest, lowest)
    before[..., 1:] = largest[..., :-1]
    distance = np.where(numbers, np.minimum(abs(known - before), FAR), FAR)
    return distance, numbers & (known > before)


def exponential_sum(mantissa: Integers, distance: Integers, rises: NDArray[np.bool_]) -> Integers:
    """Return the sum of a head's exponentials in units of 2**-24 of the largest power of two.

    If the power rises, the sum so far is shifted right by the rise and truncated; each term is
    truncated likewise.
    """
    terms = (mantissa + 1024 << 14) >> np.where(rises, 0, distance)
    added = np.concatenate([np.zeros_like(terms[..., :1]), np.cumsum(terms, axis=-1)], axis=-1)
    total, done = np.zeros_like(added[..., 0]), 0
    for place in np.flatnonzero(rises.reshape(-1, rises.shape[-1]).any(0)):
        total = total + added[..., place] - added[..., done]
        rise = np.where(rises, distance, 0)[..., place]
        total, done = np.where(rise == FAR, 0, total >> rise), place
    return total + added[..., -1] - added[..., done]


def reciprocal(total: Integers | int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the mantissa (14 fraction bits, rounded to odd) and the exponent of 1 / total.

    Only the total's leading sixteen bits are used.
    """
    whole = np.asarray(total, np.int64)
    length = np.frexp(whole.astype(np.float64))[1]
    quotient, remainder = np.divmod(1 << 29, whole >> (length - 16))
    return np.where(remainder > 0, quotient | 1, quotient), length - 25


def softmax(scores: Codes, p: ElementSerialSoftmaxParameters) -> Codes:
    """Return the FP16 codes of the probabilities of heads of the same length.

    Parameters
    ----------
    scores : numpy.ndarray
        FP16 codes, shape (..., scores), with 1 to `p.scores` scores per head.
    p : ElementSerialSoftmaxParameters
        Dimensions of the softmax.
    """
    scores = np.asarray(scores, np.uint16)
    numbers = np.isfinite(values(scores))
    whole, mantissa = exp2(scores)
    distance, rises = distances(whole, numbers)
    total = exponential_sum(mantissa, distance, rises)
    # NaN and +inf make a head undefined; -inf, the smallest score, only if there is no other.
    defined = np.isfinite(values(scores).max(-1))
    divisor, exponent = reciprocal(np.where(defined, total, SUM_ONE))
    # Rise of the power of two after each exponential: numbers shifted out entirely are 0.
    risen = np.cumsum(np.where(rises, distance, 0), axis=-1)
    away = risen[..., -1:] - risen + np.where(rises, 0, distance)
    significand = np.where(away < FAR, 1024 + mantissa, 0)
    # Exact in float64: 11 bits times 15.
    products = significand * divisor[..., None]
    shifts = -24 - exponent[..., None] - np.minimum(away, FAR)
    probabilities = encode(BINARY16, np.ldexp(products.astype(np.float64), shifts))
    return np.where(defined[..., None], probabilities, QUIET_NAN).astype(np.uint16)
