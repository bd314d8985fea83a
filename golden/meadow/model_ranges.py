"""Ranges of a whole model in MEADOW's formats: step of the hidden states, norm weights."""

import math

import numpy as np

from golden.meadow.layer_quantisation import NORM_UNIT, RealLayer, Reals
from golden.nonlinear.row_norm import finest_step
from hdl.arith.shapes import extremes
from hdl.errors import UserError
from hdl.meadow.parameters import STATE, MeadowParameters
from hdl.model_shape import NORM_EPSILON

MARGIN = 1.1
"""Margin over the maximum hidden state of the calibration text, since other texts may exceed it."""


def state_step(largest: float, p: MeadowParameters) -> float:
    """Return the step of a model's hidden states: the smallest power of two that fits.

    All layers share it, as a layer's output is the next one's input. The hardware takes any step;
    a power of two represents the embedding's FP16 and BF16 values exactly, unless they are smaller
    than the step.

    Parameters
    ----------
    largest : float
        The largest magnitude of the calibration text's hidden states, before and after every
        residual sum, and of the summands.
    p : MeadowParameters
        Dimensions of model and accelerator.
    """
    _least, most = extremes(STATE)
    finest = finest_step(p.hidden_size, NORM_EPSILON)
    return 2.0 ** math.ceil(math.log2(max(MARGIN * largest / most, finest)))


def largest_state(found: dict[str, Reals], states: Reals) -> float:
    """Return the largest magnitude of a hidden state or a summand in a layer.

    Parameters
    ----------
    found : dict
        `real_steps` of a text.
    states : numpy.ndarray
        The hidden states before the layer.
    """
    parts = states, found["output"], states + found["output"], found["down"], found["states"]
    return max(float(np.abs(part).max()) for part in parts)


def require_norm_range(layer: RealLayer, steps: dict[str, float], p: MeadowParameters) -> None:
    """Refuse norm weights outside the range of the hardware's 16-bit weights.

    Parameters
    ----------
    layer : RealLayer
        The smoothed layer.
    steps : dict
        As in `IntegerLayer`.
    p : MeadowParameters
        Dimensions of model and accelerator.

    Raises
    ------
    UserError
        If a weight is too large; the message names the limit and the value.
    """
    for own, name in zip(layer.norms, ("input", "middle"), strict=True):
        require_norm_weights(own * NORM_UNIT / steps[name], p)


def require_norm_weights(weights: Reals, p: MeadowParameters) -> None:
    """Refuse norm weights outside the range of 16 bits, see `require_norm_range`."""
    most = ((1 << 15) - 1) / (1 << p.weight_fraction)
    if (found := float(np.abs(weights).max())) > most:
        raise UserError(
            f"the norm weights of a model for MEADOW must be at most {most:.2f} in its INT8 steps, "
            f"not {found:.2f}"
        )
