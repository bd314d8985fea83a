"""Bit-exact model of the threshold unit, in integers, one head at a time."""

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hdl.arith.float_format import BINARY16

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ThresholdCoefficients:
    """The algorithm's coefficients a and b in units of 2**-12.

    Parameters
    ----------
    mean : int
        a, 0 to 8191; values above 6144 count as 6144, so that no threshold rounds to 2.
    deviation : int
        b, 0 to 8191; 819 is the nearest to 0.2.
    """

    mean: int = 4096
    deviation: int = 819


PAPER = ThresholdCoefficients()
"""a = 1 and b = 0.2."""


@dataclass(frozen=True)
class Outcome:
    """Threshold of a head, which determines its votes.

    Parameters
    ----------
    threshold : int
        FP16 code; 0 if it would be negative.
    fallback : bool
        Whether the head votes against its smallest element only.
    lowest : int
        Index of the smallest element; ties resolve to the lowest index.
    """

    threshold: int
    fallback: bool
    lowest: int


LARGEST_SUM = (2 << 40) - 1
"""Value at which sums of squares saturate, in units of 2**-40."""


def squares(codes: Codes) -> Codes:
    """Return the squares in units of 2**-40, each truncated."""
    units = np.rint(BINARY16.decode(codes) * 2.0**24).astype(np.int64)
    return (units * units) >> 8


def sum_of_squares(codes: Codes) -> int:
    """Return the sum of squares in units of 2**-40, at most `LARGEST_SUM`."""
    return min(int(squares(codes).sum()), LARGEST_SUM)


def threshold_margin(root: int, coefficients: ThresholdCoefficients) -> int:
    """Return a - b * r in units of 2**-25, for r in units of 2**-14."""
    # From units of 2**-26 to units of 2**-25.
    return ((min(coefficients.mean, 6144) << 14) - coefficients.deviation * root) >> 1


def vote_threshold(
    codes: Codes, coefficients: ThresholdCoefficients = PAPER, *, fallback: bool = True
) -> Outcome:
    """Return the outcome of one head.

    A head without a softmax has neither a threshold nor a fallback, and casts no vote.

    Parameters
    ----------
    codes : numpy.ndarray
        int64 FP16 codes without their signs, one per element; in a distribution all are below 2.
    coefficients : ThresholdCoefficients
        Coefficients of mean and deviation.
    fallback : bool
        As in `VoteThresholdParameters`.
    """
    length = len(codes)
    if (BINARY16.decode(codes) >= 2).any() or np.isnan(BINARY16.decode(codes)).any():
        return Outcome(0, False, 0)
    lowest = int(np.argmin(codes))
    excess = max(0, ((length * sum_of_squares(codes)) >> 12) - (1 << 28))
    margin = threshold_margin(isqrt(excess), coefficients)
    if margin < 0:
        return Outcome(0, fallback, lowest)
    return Outcome(rounded_quotient(margin, length), False, lowest)


def rounded_quotient(margin: int, length: int) -> int:
    """Return the FP16 code nearest to `margin` * 2**-25 / `length`, ties to even."""
    # The weight of the result's last bit, as a power of two times 2**-25.
    step = 1
    while margin >= (length << step + BINARY16.significand_bits):
        step += 1
    whole, rest = divmod(margin, length << step)
    half = length << step - 1
    whole += rest > half or (rest == half and whole & 1)
    return (step - 1 << BINARY16.mantissa_bits) + whole


def votes(codes: Codes, outcome: Outcome) -> NDArray[np.bool_]:
    """Return the tokens against which a head votes, given its threshold."""
    if outcome.fallback:
        return np.arange(len(codes)) == outcome.lowest
    return codes < outcome.threshold
