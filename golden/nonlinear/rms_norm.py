"""RMSNorm: float64 reference, and bit-exact model of the fixed-point unit."""

import numpy as np

from golden.nonlinear import row_norm
from golden.nonlinear.row_norm import Floats, Integers, clamped, reciprocal_root, weighted
from hdl.nonlinear.rms_norm import RmsNormParameters


def exact_rms_norm(
    states: Integers, epsilon: Integers, weights: Integers, p: RmsNormParameters
) -> Floats:
    """Return the RMSNorm of the same integers in float64."""
    squares = np.sum(states.astype(np.float64) ** 2, axis=1, keepdims=True)
    mean = (squares + epsilon[:, np.newaxis]) / p.width
    return states / np.sqrt(mean) * weights / (1 << p.weight_fraction)


def roots(p: RmsNormParameters) -> Integers:
    """Return the table of reciprocal roots, scaled by the root of the width over a power of two."""
    return row_norm.roots(np.sqrt(p.width) / 2.0**p.width_exponent)


def rms_norm(
    states: Integers, epsilon: Integers, weights: Integers, p: RmsNormParameters
) -> Integers:
    """Return normalised and weighted rows in Q6.10.

    Parameters
    ----------
    states : numpy.ndarray
        Raw rows [rows, width] of 16 bits.
    epsilon : numpy.ndarray
        Width times epsilon in squared steps of the row, for each row.
    weights : numpy.ndarray
        Raw weights [width], with `p.weight_fraction` fraction bits.
    p : RmsNormParameters
        Parameters of the unit.
    """
    total = np.sum(states * states, axis=1) + epsilon
    root, shift = reciprocal_root(total, roots(p))
    ratio = (states * root[:, np.newaxis]) >> shift[:, np.newaxis]
    return clamped(weighted(ratio, weights, p))
