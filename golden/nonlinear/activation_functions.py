"""SiLU and GeLU: float64 reference, and bit-exact model of the table unit."""

from math import erf, erfc

import numpy as np
from numpy.typing import NDArray

from golden.arith.table_interpolation import interpolate
from hdl.nonlinear.activation_functions import (
    GUARD_BITS,
    RANGE_BITS,
    VALUE,
    ActivationFunctionsParameters,
    Function,
)

Integers = NDArray[np.int64]


def exact_activation(values: NDArray[np.float64], function: Function) -> NDArray[np.float64]:
    """Return the value of a function in float64."""
    if function is Function.SILU:
        return values / (1 + np.exp(-values))
    return values * (1 + np.vectorize(erf)(values / np.sqrt(2))) / 2


def dips(pieces: int) -> Integers:
    """Return max(x, 0) minus SiLU, then minus GeLU, at the ends of equal segments of 0 to 16."""
    x = np.linspace(0, 1 << RANGE_BITS, pieces + 1)
    silu = x - x / (1 + np.exp(-x))
    gelu = x * np.vectorize(erfc)(x / np.sqrt(2)) / 2
    scale = 1 << VALUE.fraction_bits + GUARD_BITS
    return np.rint(scale * np.concatenate([silu[:-1], gelu])).astype(np.int64)


def activation(
    values: Integers, functions: Integers | int, p: ActivationFunctionsParameters
) -> Integers:
    """Return function values in Q6.10 of inputs in Q6.10.

    Parameters
    ----------
    values : numpy.ndarray
        Raw inputs in Q6.10.
    functions : numpy.ndarray or int
        Value of the `Function` of each input; broadcast.
    p : ActivationFunctionsParameters
        Parameters of the unit.
    """
    magnitude = np.abs(np.asarray(values, np.int64))
    end = 1 << RANGE_BITS + VALUE.fraction_bits
    place = np.where(magnitude < end, magnitude, 0) + functions * end
    table = dips(p.pieces)
    dip = interpolate(place, table, offset_bits=p.offset_bits, guard_bits=GUARD_BITS)
    return np.maximum(values, 0) - dip
