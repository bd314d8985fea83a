"""Common parts of the models of RMSNorm and layer norm: quantisation, table, root."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.fixed_point import FixedPoint, quantise
from golden.arith.reciprocal import normalise
from golden.arith.table_interpolation import interpolate
from hdl.nonlinear.row_norm import (
    EPSILON_BITS,
    FRACTION_BITS,
    GUARD_BITS,
    OUTPUT,
    PIECES,
    ROOT_FRACTION,
    RowNormParameters,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def quantise_states(states: NDArray[np.floating], epsilon: float) -> tuple[Integers, Integers]:
    """Quantise each row to 16 bits with its own power of two, and epsilon to the same steps.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        The states [rows, width] as raw integers, and the unit's `epsilon` for each row.
    """
    states = np.asarray(states, np.float64)
    exponent = 15 - np.frexp(np.abs(states).max(axis=1))[1]
    raw = np.clip(np.rint(np.ldexp(states, exponent[:, np.newaxis])), -(1 << 15), (1 << 15) - 1)
    units = np.rint(np.ldexp(states.shape[1] * epsilon, 2 * exponent))
    return raw.astype(np.int64), np.minimum(units, (1 << EPSILON_BITS) - 1).astype(np.int64)


def finest_step(width: int, epsilon: float) -> float:
    """Return the smallest step of a hidden state for which `epsilon` has `EPSILON_BITS`.

    Parameters
    ----------
    width
        Elements of a hidden state.
    epsilon
        The number that the norm adds to the mean square.
    """
    return float(np.sqrt(width * epsilon / ((1 << EPSILON_BITS) - 1)))


def quantise_weights(weights: NDArray[np.floating], p: RowNormParameters) -> Integers:
    """Quantise weights to 16 bits."""
    integer_bits = 16 - p.weight_fraction
    target = FixedPoint(integer_bits=integer_bits, fraction_bits=p.weight_fraction)
    return quantise(weights, target)


def error_bound(
    exact: Floats, weights: Integers, p: RowNormParameters, biases: Integers | int = 0
) -> Floats:
    """Return the error bound of a unit for results that do not saturate."""
    weight = np.abs(weights) / (1 << p.weight_fraction)
    step = 2.0**-OUTPUT.fraction_bits
    own = np.abs(exact - biases * step)
    return step / 2 + weight * 2.0 ** -(p.ratio_fraction + 1) + 4e-5 * own


def roots(factor: float) -> Integers:
    """Return ``factor / sqrt(x)`` for x from 1 to 4, half of the segments per octave."""
    half = PIECES // 2
    x = np.concatenate([1 + np.arange(half) / half, 2 + 2 * np.arange(half + 1) / half])
    return np.rint(2.0 ** (ROOT_FRACTION + GUARD_BITS) * factor / np.sqrt(x)).astype(np.int64)


def reciprocal_root(total: Integers, table: Integers) -> tuple[Integers, Integers]:
    """Return the mantissa of ``1 / sqrt(total)`` from a table of roots, and its shift."""
    divisor, exponent = normalise(np.maximum(total, 1), FRACTION_BITS)
    place = divisor - (1 << FRACTION_BITS) + ((exponent & 1) << FRACTION_BITS)
    offset_bits = FRACTION_BITS + 1 - (PIECES.bit_length() - 1)
    return interpolate(place, table, offset_bits=offset_bits, guard_bits=GUARD_BITS), exponent >> 1


def weighted(ratio: Integers, weights: Integers, p: RowNormParameters) -> Integers:
    """Return ratios times weights, before clamping."""
    return (2 * ratio + 1) * weights + (1 << p.drop - 1) >> p.drop


def clamped(values: Integers) -> Integers:
    """Return values clamped to the output format."""
    return np.clip(values, -(1 << 15), (1 << 15) - 1)
