"""A decoder layer of OPT as the library has it, in float64 and with drawn numbers."""

from typing import Any

import torch
from numpy.typing import NDArray
from transformers import OPTConfig
from transformers.models.opt.modeling_opt import OPTDecoderLayer


def drawn_layer(config: OPTConfig, matrices: float | None = None) -> Any:
    """Return a layer of which every bias and norm is drawn, and the matrices are the library's.

    With a number these are drawn, too, with that deviation.
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
