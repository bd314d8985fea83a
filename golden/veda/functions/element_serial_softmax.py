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
Integers = NDArray[np.int64] | int

SUM_ONE = 1 << 24
"""1 in a sum of exponentials."""

SIGN = 0x8000
MINUS_INFINITY = 0xFC00


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


def exponential(scores: Codes, maxima: Codes) -> Codes:
    """Return exp(x - m) of FP16 codes, the difference and the exponential rounded to FP16."""
    negated = np.broadcast_to(maxima ^ np.uint16(SIGN), scores.shape)
    return exp(float_add(BINARY16, scores, negated), domain=Domain.NONPOSITIVE)


def units(exponentials: Codes) -> NDArray[np.int64]:
    """Return FP16 numbers from 0 to 1 in units of 2**-24; of anything else, such as a NaN, 0."""
    powers = values(exponentials)
    return np.where(powers <= 1, np.nan_to_num(powers) * SUM_ONE, 0).astype(np.int64)


def rescaled(total: Integers, factor: Integers) -> NDArray[np.int64]:
    """Return total * factor / 2**24; each one of the factor drops what it shifts out."""
    shifts = np.arange(25)
    ones = np.expand_dims(factor, -1) >> shifts[::-1] & 1
    return ((np.expand_dims(total, -1) >> shifts) * ones).sum(-1)


def reciprocal(total: Integers) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the mantissa (14 fraction bits, to odd) and the exponent of 1 / total.

    Of the total, its leading sixteen bits count.
    """
    whole = np.asarray(total, np.int64)
    length = np.frexp(whole.astype(np.float64))[1]
    quotient, remainder = np.divmod(1 << 29, whole >> (length - 16))
    return np.where(remainder > 0, quotient | 1, quotient), length - 25


def running_maxima(tiles: Codes) -> Codes:
    """Return the largest score up to each tile's end, +0 above -0, shape (..., tiles)."""
    code = tiles.astype(np.int64)
    # Negative codes run backwards.
    ordered = np.where(code < SIGN, code + SIGN, 2 * SIGN - 1 - code).max(-1)
    largest = np.maximum.accumulate(ordered, axis=-1)
    return np.where(largest < SIGN, 2 * SIGN - 1 - largest, largest - SIGN).astype(np.uint16)


def softmax(scores: Codes, p: ElementSerialSoftmaxParameters) -> Codes:
    """Return the FP16 codes of the probabilities of heads of the same length.

    Parameters
    ----------
    scores : numpy.ndarray
        FP16 codes, shape (..., scores), 1 to `p.capacity` of them a head.
    p : ElementSerialSoftmaxParameters
        Dimensions.
    """
    scores = np.asarray(scores, np.uint16)
    *heads, count = scores.shape
    # A score of -inf fills the last tile: it raises no maximum and adds nothing.
    tiles = np.full((*heads, -(-count // p.tile), p.tile), MINUS_INFINITY, np.uint16)
    tiles.reshape(*heads, -1)[..., :count] = scores
    maxima = running_maxima(tiles)
    added = units(exponential(tiles, maxima[..., None])).sum(-1)
    factors = units(exponential(maxima[..., :-1], maxima[..., 1:]))
    total = added[..., 0]
    for tile in range(1, added.shape[-1]):
        total = rescaled(total, factors[..., tile - 1]) + added[..., tile]
    defined = np.isfinite(values(scores).max(-1))
    mantissa, exponent = reciprocal(np.where(defined, total, SUM_ONE))
    exponentials = values(exponential(scores, maxima[..., -1:]))
    # Exact in float64: 11 bits times 15.
    products = np.ldexp(exponentials * mantissa[..., None], (-14 - exponent)[..., None])
    probabilities = encode(BINARY16, products)
    return np.where(defined[..., None], probabilities, QUIET_NAN).astype(np.uint16)
