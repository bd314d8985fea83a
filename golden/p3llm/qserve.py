"""QServe (Lin et al., MLSys 2025) with W4A8KV4 in groups of 128, a rival of Table IV.

Hidden states and values are rotated, as in `quarot`. Smoothing moves a part of the range of
`down_proj`'s inputs into its weights, and of the keys into the queries. The inputs of `down_proj`
are sorted by their largest magnitude, so that similar channels share a group. Weights are rounded
by GPTQ in two levels: INT8 with a step per output, then unsigned 4 bits with an INT8 step and a
zero point per group. Exponents, order and calibration are those of `qoq-g128` in the published code
(`mit-han-lab/deepcompressor`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from golden.p3llm.gptq import GroupRounding, Rounding, layer_inputs, round_layers
from golden.p3llm.rotated_model import FourBitAttention, rotated_model
from golden.p3llm.scheme import linear_layers
from golden.p3llm.tensor_formats import integers

GROUP = 128
"""Weights per group; halved if it does not divide the inputs."""
ACTIVATION_BITS = 8
LIMIT = 119
"""Largest INT8 code of the first level: the second level's rounding then fits 8 bits."""
LEVELS = 15
"""Largest code of the second level."""
KEY_POWER = 0.5
"""Exponent of the keys' largest magnitudes."""
INPUT_POWER, WEIGHT_POWER = 0.3, 0.7
"""Exponents of the largest magnitudes of `down_proj`'s inputs and weights."""
SMALLEST = 1e-5


def qserve_model(model: Any, tokens: Tensor, done: Callable[[], None] = lambda: None) -> Any:
    """Return a quantised copy of a model.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens : Tensor
        Token numbers of the calibration text.
    done : Callable
        Called after each layer.
    """
    found = rotated_model(model)
    smooth(found, tokens)
    round_layers(found, tokens, progressive, done)
    for module in linear_layers(found).values():
        module.register_forward_pre_hook(lambda _, inputs: (integers(inputs[0], ACTIVATION_BITS),))
    FourBitAttention(clip=1.0, rotated=False).attend_in(found)
    return found


def smooth(model: Any, tokens: Tensor) -> None:
    """Smooth keys and the inputs of `down_proj`, and sort the latter, in place.

    The outputs of the model do not change.
    """
    with torch.inference_mode():
        states, arguments = layer_inputs(model, tokens)
        for layer in model.model.layers:
            seen: dict[str, Tensor] = {}
            attention, forward = layer.self_attn, layer.mlp
            hooks = [
                attention.k_proj.register_forward_hook(
                    lambda _, __, made, seen=seen: seen.update(keys=made)
                ),
                forward.down_proj.register_forward_pre_hook(
                    lambda _, inputs, seen=seen: seen.update(inputs=inputs[0])
                ),
            ]
            states = layer(states, **arguments)
            for hook in hooks:
                hook.remove()
            _smooth_keys(attention, seen["keys"], arguments["position_embeddings"])
            _smooth_inputs(forward, seen["inputs"].flatten(0, -2).abs().amax(0))


def _smooth_keys(attention: Any, keys: Tensor, turns: tuple[Tensor, Tensor]) -> None:
    """Divide keys by powers of their largest magnitudes; queries are multiplied by them."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    size = attention.head_dim
    heads = keys.unflatten(-1, (-1, size)).transpose(1, 2)
    rotated, _ = apply_rotary_pos_emb(heads, heads, *turns)
    largest = rotated.abs().amax((0, 2))
    # Both channels that the rotary embedding mixes need one factor.
    pair = largest.unflatten(-1, (2, -1)).amax(-2)
    factors = torch.cat([pair, pair], -1).clamp_min(SMALLEST) ** KEY_POWER
    attention.k_proj.weight.data /= factors.flatten()[:, None]
    repeated = factors.repeat_interleave(attention.num_key_value_groups, 0)
    attention.q_proj.weight.data *= repeated.flatten()[:, None]


def _smooth_inputs(forward: Any, largest: Tensor) -> None:
    """Divide the inputs of `down_proj` by factors and sort them; `up_proj` does both."""
    down = forward.down_proj.weight.data
    factors = largest.clamp_min(SMALLEST) ** INPUT_POWER / (
        down.abs().amax(0).clamp_min(SMALLEST) ** WEIGHT_POWER
    )
    order = (largest / factors).argsort(descending=True)
    forward.up_proj.weight.data = (forward.up_proj.weight.data / factors[:, None])[order]
    forward.gate_proj.weight.data = forward.gate_proj.weight.data[order]
    forward.down_proj.weight.data = (down * factors)[:, order]


def progressive(weights: Tensor) -> tuple[int, GroupRounding]:
    """Return the columns per group of a matrix [outputs, inputs], and the rounding in two levels.

    The first level's steps are those of the matrix, the second level's those of a group.
    """
    steps = (weights.double().abs().amax(1) / LIMIT).clamp_min(1e-12)

    def rounding(group: Tensor) -> Rounding:
        codes = first_level(group / steps[:, None])
        low, high = codes.amin(1).clamp_max(0), codes.amax(1).clamp_min(0)
        step = ((high - low) / LEVELS).round().clamp_min(1)
        zero = (-low / step).round().clamp(0, LEVELS)

        def rounded(column: Tensor) -> Tensor:
            code = (first_level(column / steps) / step + zero).round().clamp(0, LEVELS)
            return (code - zero) * step * steps

        return rounded

    inputs = weights.shape[1]
    return (GROUP if inputs % GROUP == 0 else GROUP // 2), rounding


def first_level(ratios: Tensor) -> Tensor:
    """Return INT8 codes."""
    return ratios.round().clamp(-LIMIT, LIMIT)
