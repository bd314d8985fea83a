"""Published models on MEADOW: parameters of the accelerator that runs a layer of each."""

from dataclasses import replace
from typing import Any

from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.nonlinear.activation_functions import Activation

MODELS = {
    "OPT-125M": (768, 3072, 12, 12),
    "OPT-1.3B": (2048, 8192, 32, 32),
    "SmolLM2-1.7B": (2048, 8192, 32, 32),
    "TinyLlama-1.1B": (2048, 5632, 32, 4),
}
"""Hidden size, feed-forward size, heads, key/value heads."""


def model_parameters(model: str, **changes: Any) -> MeadowParameters:
    """Return the accelerator of preset `paper` with the dimensions of a model.

    Other than in the preset, which fits a device, a block has 512 tokens, the norm has a lane for
    each element of a word, and each product has a multiplier. SmolLM2 and TinyLlama have a norm
    without bias, a gate and a rotary embedding.
    """
    paper: MeadowParameters = entry_named("meadow").parameters("paper")
    hidden, inner, heads, kv_heads = MODELS[model]
    own = {"hidden_size": hidden, "intermediate_size": inner, "heads": heads, "kv_heads": kv_heads}
    own |= {"tokens": 512, "words": 1 << 16, "norm_lanes": None, "shared_multipliers": False}
    if not model.startswith("OPT"):
        own |= {"rotary": True, "layer_norm": False, "biases": False, "gated": True}
        own |= {"activation": Activation.SILU}
    if hidden != paper.hidden_size:
        own |= {"words": 1 << 17, "slices": 4}
    return replace(paper, **own | changes)
