"""Layer norm: float64 reference, and bit-exact model of the fixed-point unit."""

import numpy as np

from golden.nonlinear import row_norm
from golden.nonlinear.row_norm import Floats, Integers, clamped, reciprocal_root, weighted
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.row_norm import OUTPUT


def exact_layer_norm(
    states: Integers,
    epsilon: Integers,
    weights: Integers,
    biases: Integers,
    p: LayerNormParameters,
) -> Floats:
    """Return the layer norm of the same integers in float64."""
    centred = states - np.mean(states, axis=1, keepdims=True, dtype=np.float64)
    variance = np.mean(centred**2, axis=1, keepdims=True) + epsilon[:, np.newaxis] / p.width
    ratio = np.divide(centred, np.sqrt(variance), out=np.zeros_like(centred), where=variance > 0)
    return ratio * weights / (1 << p.weight_fraction) + biases / (1 << OUTPUT.fraction_bits)


def roots(p: LayerNormParameters) -> Integers:
    """Return the table of reciprocal roots, which does not depend on the width."""
    return row_norm.roots(1.0)


def layer_norm(
    states: Integers,
    epsilon: Integers,
    weights: Integers,
    biases: Integers,
    p: LayerNormParameters,
) -> Integers:
    """Return normalised, weighted and biased rows in Q6.10.

    Parameters
    ----------
    states : numpy.ndarray
        Raw rows [rows, width] of 16 bits.
    epsilon : numpy.ndarray
        Width times epsilon in squared steps of the row, for each row.
    weights, biases : numpy.ndarray
        Raw weights [width], with `p.weight_fraction` fraction bits, and biases in Q6.10.
    p : LayerNormParameters
        Parameters of the unit.
    """
    total = np.sum(states, axis=1)
    spread = p.width * (np.sum(states * states, axis=1) + epsilon) - total * total
    root, shift = reciprocal_root(spread, roots(p))
    centred = p.width * states - total[:, np.newaxis]
    # The product has at most 47 bits.
    ratio = (centred * root[:, np.newaxis]) >> (shift + p.width_exponent)[:, np.newaxis]
    return clamped(weighted(ratio, weights, p) + biases)
