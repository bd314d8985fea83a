"""Bit-exact model of the combiner: sums with hidden states, and activations."""

import numpy as np
from numpy.typing import NDArray

from golden.nonlinear.activation_functions import activation
from hdl.meadow.parameters import GATE_DROP, STATE
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT
from hdl.nonlinear.activation_functions import Activation, ActivationFunctionsParameters, Function

Integers = NDArray[np.int64]


def added(states: Integers, results: Integers, lift: int) -> Integers:
    """Return the sums of hidden states and lifted results, clamped to 24 bits."""
    highest = (1 << STATE.width - 1) - 1
    return np.clip(states + (results << lift), -highest - 1, highest)


def activated(values: Integers, function: Activation) -> Integers:
    """Return the activation of values, in Q6.10 unless it is ReLU."""
    if function is Activation.RELU:
        return np.maximum(values, 0)
    return activation(values, Function[function.name].value, ActivationFunctionsParameters())


def narrowed(values: Integers, factor: Integers | int, *, wide: bool = False) -> Integers:
    """Return activated values times a factor, rounded half to even and clamped.

    The product is divided by ``2**GATE_DROP`` and has 8 bits. With `wide` it is divided by
    ``2**(GATE_DROP - BASE_EXPONENT)`` and has 24 bits.
    """
    drop, bits = (GATE_DROP - BASE_EXPONENT, STATE.width) if wide else (GATE_DROP, 8)
    product, half = values * factor, 1 << drop - 1
    floor, rest = product >> drop, product & (1 << drop) - 1
    up_one = (rest > half) | ((rest == half) & (floor & 1 == 1))
    return np.clip(floor + up_one, -(1 << bits - 1), (1 << bits - 1) - 1)
