"""QuaRot (Ashkboos et al., NeurIPS 2024) with W4A8KV4, a rival of Table IV.

Hidden states and values are rotated by Hadamard matrices that the weights absorb; the inputs of
`down_proj`, and queries and keys after the rotary embedding, are rotated during decoding. Weights
have one symmetric scale per output, clipped for the smallest error, and are rounded by GPTQ. Their
inputs have 8 bits and one scale per token. Grids and clip ratios are those of the published code
and of the paper's Section 5. Not built: the rotation across query heads, which needs a Hadamard
matrix of their number.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from golden.p3llm.gptq import Rounding, round_layers
from golden.p3llm.rotated_model import FourBitAttention, rotate_inputs, rotated_model
from golden.p3llm.scheme import linear_layers
from golden.p3llm.tensor_formats import integers

WEIGHT_BITS, ACTIVATION_BITS = 4, 8
ACTIVATION_CLIP, CACHE_CLIP = 0.9, 0.95
SHRINKS = tuple(1 - n / 100 for n in range(80))
"""Ratios of an output's largest weight that are tried as the value of the largest integer."""
NORM = 2.4
"""Exponent of the rounding errors that the clip ratio minimises."""


def quarot_model(model: Any, tokens: Tensor, done: Callable[[], None] = lambda: None) -> Any:
    """Return a quantised copy of a model.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens : Tensor
        Token numbers of the calibration text of GPTQ.
    done : Callable
        Called after each layer.
    """
    found = rotated_model(model)
    for layer in found.model.layers:
        rotate_inputs(layer.mlp.down_proj)
    round_layers(found, tokens, lambda weights: (weights.shape[1], per_output), done)
    for module in linear_layers(found).values():
        module.register_forward_pre_hook(
            lambda _, inputs: (integers(inputs[0], ACTIVATION_BITS, ACTIVATION_CLIP),)
        )
    FourBitAttention(clip=CACHE_CLIP, rotated=True).attend_in(found)
    return found


def per_output(weights: Tensor) -> Rounding:
    """Return the rounding of a matrix [outputs, inputs] with one symmetric step per output."""
    steps = clipped_steps(weights)
    limit = (1 << WEIGHT_BITS - 1) - 1
    return lambda column: (column / steps).round().clamp(-limit - 1, limit) * steps


def clipped_steps(weights: Tensor) -> Tensor:
    """Return the step of each output [outputs] with the smallest error over `SHRINKS`."""
    limit = (1 << WEIGHT_BITS - 1) - 1
    whole = (weights.abs().amax(1) / limit).clamp_min(1e-12)
    best, least = whole, torch.full_like(whole, torch.inf)
    for shrink in SHRINKS:
        steps = whole * shrink
        rounded = (weights / steps[:, None]).round().clamp(-limit - 1, limit) * steps[:, None]
        error = (rounded - weights).abs().pow(NORM).sum(1)
        best = torch.where(error < least, steps, best)
        least = error.minimum(least)
    return best
