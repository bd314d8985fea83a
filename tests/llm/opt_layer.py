"""A decoder layer of OPT from `transformers`, in float64 and with random numbers."""

from typing import Any

import torch
from numpy.typing import NDArray
from transformers import OPTConfig
from transformers.models.opt.modeling_opt import OPTDecoderLayer


def drawn_layer(config: OPTConfig, matrices: float | None = None) -> Any:
    """Return a layer with random biases and norms, and with the library's initial matrices.

    If a deviation is given, the matrices are also random, with this standard deviation.
    """
    # The other implementation has its softmax in float32.
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    module = OPTDecoderLayer(config, layer_idx=0).double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "layer_norm" in name:
                parameter.normal_(1, 0.3)
            elif matrices is not None:
                parameter.normal_(0, matrices)
    return module


def numbers(tensor: Any) -> NDArray[Any]:
    """Return a parameter's numbers."""
    return tensor.detach().numpy()
