"""Special function unit: the models of its four functions, applied to their inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.veda.functions.element_serial_activation import activation
from golden.veda.functions.element_serial_layernorm import layernorm
from golden.veda.functions.element_serial_rotary import rotary
from golden.veda.functions.element_serial_softmax import softmax
from hdl.veda.functions.special_function_unit import SpecialFunctionUnitParameters

Codes = NDArray[np.uint16]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Inputs of each function, in FP16 codes.

    Parameters
    ----------
    heads : Sequence[numpy.ndarray]
        Scores [lanes, length] of heads in lock-step.
    vectors : Sequence[numpy.ndarray]
        Vectors to normalise.
    operands : tuple[numpy.ndarray, numpy.ndarray]
        Outputs of `gate_proj` and `up_proj`.
    pairs : tuple of four arrays
        Elements x and y, cosine and sine of their angle.
    """

    heads: Sequence[Codes]
    vectors: Sequence[Codes]
    operands: tuple[Codes, Codes]
    pairs: tuple[Codes, Codes, Codes, Codes]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Outputs of the functions, in FP16 codes.

    Parameters
    ----------
    probabilities : numpy.ndarray
        Shape [scores, lanes], heads concatenated.
    normalised, activated : numpy.ndarray
        Elements, concatenated.
    rotated : tuple[numpy.ndarray, numpy.ndarray]
        Both elements of the pairs.
    """

    probabilities: Codes
    normalised: Codes
    activated: Codes
    rotated: tuple[Codes, Codes]


def special_functions(work: Work, p: SpecialFunctionUnitParameters) -> Answers:
    """Return the unit's outputs: no function depends on another."""
    lanes = [softmax(head, p.softmax) for head in work.heads]
    none = np.zeros((0, p.lanes), np.uint16)
    vectors = [layernorm(vector, p.layernorm) for vector in work.vectors]
    return Answers(
        probabilities=np.concatenate([none, *(np.transpose(head) for head in lanes)]),
        normalised=np.concatenate([none[:, 0], *vectors]),
        activated=activation(*work.operands),
        rotated=rotary(*work.pairs),
    )
