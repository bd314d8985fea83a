"""Low-precision weights, activations and cached vectors inside a model (Kelle, Table 6).

Values are symmetric integers, rounded to nearest. There is one scale per output of a weight matrix,
per token of an activation and per head of a cached key or value. Unlike in the paper's QuaRot,
outliers are not rotated.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def quantised(
    model: Any, *, weight_bits: int, activation_bits: int, cache_bits: int = 16
) -> Iterator[None]:
    """Quantise the linear layers of a model's decoder inside the context."""
    linears = [
        (name, module)
        for name, module in model.model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    size = model.model.layers[0].self_attn.head_dim
    with ExitStack() as undo:
        for name, module in linears:
            weight = module.weight.data
            undo.callback(setattr, module.weight, "data", weight)
            module.weight.data = rounded(weight, weight_bits)
            hook = module.register_forward_pre_hook(
                lambda _, inputs: (rounded(inputs[0], activation_bits),)
            )
            undo.callback(hook.remove)
            if cache_bits < 16 and name.endswith(("k_proj", "v_proj")):
                hook = module.register_forward_hook(
                    lambda _, __, made: rounded(made.unflatten(-1, (-1, size)), cache_bits).flatten(
                        -2
                    )
                )
                undo.callback(hook.remove)
        yield


def rounded(values: Tensor, bits: int) -> Tensor:
    """Round `values` to integers of `bits` bits, with one scale per vector of the last axis."""
    limit = (1 << bits - 1) - 1
    scale = values.abs().amax(-1, keepdim=True).clamp_min(1e-12) / limit
    return (values / scale).round() * scale
