"""Bit-exact model of the special function unit, whose functions are independent."""

import numpy as np
from numpy.typing import NDArray

from golden.nonlinear.activation_functions import activation
from golden.nonlinear.rms_norm import rms_norm
from golden.nonlinear.rotary_embedding import rotate
from golden.nonlinear.softmax import softmax
from hdl.kelle.sfu import SfuParameters

Integers = NDArray[np.int64]


class SfuModel:
    """The functions at the dimensions of one unit.

    Parameters
    ----------
    parameters : SfuParameters
        Dimensions of the four functions.
    """

    def __init__(self, parameters: SfuParameters) -> None:
        self.parameters = parameters

    def softmax(self, scores: Integers, keep: NDArray[np.bool_]) -> Integers:
        """Return probabilities, as `golden.nonlinear.softmax.softmax`."""
        return softmax(scores, keep, self.parameters.softmax)

    def activation(self, values: Integers, functions: Integers) -> Integers:
        """Return SiLU or GeLU, as `golden.nonlinear.activation_functions.activation`."""
        return activation(values, functions, self.parameters.activation)

    def rms_norm(self, states: Integers, epsilon: Integers, weights: Integers) -> Integers:
        """Return normalised rows, as `golden.nonlinear.rms_norm.rms_norm`."""
        return rms_norm(states, epsilon, weights, self.parameters.norm)

    def rotate(self, vectors: Integers, positions: Integers) -> Integers:
        """Return rotated vectors, as `golden.nonlinear.rotary_embedding.rotate`."""
        return rotate(vectors, positions, self.parameters.rotary)
