"""RMSNorm: the truth in float64, and the bit-exact model of the fixed-point unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.fixed_point import FixedPoint, quantise
from golden.arith.reciprocal import normalise
from golden.arith.table_interpolation import interpolate
from hdl.nonlinear.rms_norm import (
    EPSILON_BITS,
    FRACTION_BITS,
    GUARD_BITS,
    OUTPUT,
    PIECES,
    ROOT_FRACTION,
    RmsNormParameters,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def quantise_states(states: NDArray[np.floating], epsilon: float) -> tuple[Integers, Integers]:
    """Bring rows to 16 bits, each by its own power of two, and epsilon to the same steps.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        The states [rows, width] as raw integers, and for each row the unit's `epsilon`.
    """
    states = np.asarray(states, np.float64)
    exponent = 15 - np.frexp(np.abs(states).max(axis=1))[1]
    raw = np.clip(np.rint(np.ldexp(states, exponent[:, np.newaxis])), -(1 << 15), (1 << 15) - 1)
    units = np.rint(np.ldexp(states.shape[1] * epsilon, 2 * exponent))
    return raw.astype(np.int64), np.minimum(units, (1 << EPSILON_BITS) - 1).astype(np.int64)


def quantise_weights(weights: NDArray[np.floating], p: RmsNormParameters) -> Integers:
    """Bring weights to 16 bits."""
    integer_bits = 16 - p.weight_fraction
    target = FixedPoint(integer_bits=integer_bits, fraction_bits=p.weight_fraction)
    return quantise(weights, target)


def exact_rms_norm(
    states: Integers, epsilon: Integers, weights: Integers, p: RmsNormParameters
) -> Floats:
    """Return the norm of the same integers in float64."""
    squares = np.sum(states.astype(np.float64) ** 2, axis=1, keepdims=True)
    mean = (squares + epsilon[:, np.newaxis]) / p.width
    return states / np.sqrt(mean) * weights / (1 << p.weight_fraction)


def error_bound(exact: Floats, weights: Integers, p: RmsNormParameters) -> Floats:
    """Return the largest error that the unit may have where it does not saturate."""
    weight = np.abs(weights) / (1 << p.weight_fraction)
    step = 2.0**-OUTPUT.fraction_bits
    return step / 2 + weight * 2.0 ** -(p.ratio_fraction + 1) + 4e-5 * np.abs(exact)


def roots(p: RmsNormParameters) -> Integers:
    """Return ``sqrt(width) / 2**width_exponent / sqrt(x)`` for x from 1 to 4, halves an octave."""
    half = PIECES // 2
    x = np.concatenate([1 + np.arange(half) / half, 2 + 2 * np.arange(half + 1) / half])
    scale = 2.0 ** (ROOT_FRACTION + GUARD_BITS - p.width_exponent)
    return np.rint(scale * np.sqrt(p.width / x)).astype(np.int64)


def rms_norm(
    states: Integers, epsilon: Integers, weights: Integers, p: RmsNormParameters
) -> Integers:
    """Return normalised and weighted rows in Q6.10.

    Parameters
    ----------
    states : numpy.ndarray
        Raw rows [rows, width] of 16 bits.
    epsilon : numpy.ndarray
        For each row, width times epsilon in squared steps of the row.
    weights : numpy.ndarray
        Raw weights [width], with `p.weight_fraction` fraction bits.
    p : RmsNormParameters
        Dimensions.
    """
    total = np.sum(states * states, axis=1) + epsilon
    divisor, exponent = normalise(np.maximum(total, 1), FRACTION_BITS)
    place = divisor - (1 << FRACTION_BITS) + ((exponent & 1) << FRACTION_BITS)
    offset_bits = FRACTION_BITS + 1 - (PIECES.bit_length() - 1)
    root = interpolate(place, roots(p), offset_bits=offset_bits, guard_bits=GUARD_BITS)
    ratio = (states * root[:, np.newaxis]) >> (exponent >> 1)[:, np.newaxis]
    weighted = (2 * ratio + 1) * weights + (1 << p.drop - 1) >> p.drop
    return np.clip(weighted, -(1 << 15), (1 << 15) - 1)
