"""One pass of the model that records the activations of the requested decoder layers."""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from golden.llm.model import SMOLLM2

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM

Tensors = dict[str, np.ndarray]

LINEAR_INPUTS = {
    "q_proj": "attention_input",
    "k_proj": "attention_input",
    "v_proj": "attention_input",
    "o_proj": "head_outputs",
    "gate_proj": "feed_forward_input",
    "up_proj": "feed_forward_input",
    "down_proj": "feed_forward_product",
}
"""The recorded tensor that is the input of each linear layer."""

NORM_WEIGHTS = {"input": "input_layernorm", "post_attention": "post_attention_layernorm"}
"""Names of a layer's two RMSNorms in the model, by their names here."""


def capture_activations(
    model: "LlamaForCausalLM", tokens: np.ndarray, layers: Iterable[int]
) -> dict[int, Tensors]:
    """Run the model once over `tokens` and return the activations of `layers`.

    Returns
    -------
    dict
        For each layer, float32 arrays with the token as first axis: ``states_in``,
        ``attention_input``, ``q_before_rope``, ``k_before_rope``, ``q``, ``k``, ``v`` (axes token,
        head, element), ``head_outputs``, ``attention_output``, ``feed_forward_input``,
        ``feed_forward_product``, ``states_out``.
    """
    import torch

    recorded: dict[int, Tensors] = {layer: {} for layer in layers}
    with ExitStack() as hooks, torch.inference_mode():
        for layer, tensors in recorded.items():
            for handle in _hook_layer(model.model.layers[layer], tensors):
                hooks.callback(handle.remove)
        model.model(input_ids=torch.tensor(tokens, dtype=torch.long)[None], use_cache=False)
    return recorded


def capture_weights(model: "LlamaForCausalLM", layers: Iterable[int]) -> dict[int, Tensors]:
    """Return the weights of the linear layers and the RMSNorms of `layers`, float32."""
    captured = {}
    for layer in layers:
        decoder: Any = model.model.layers[layer]
        linear = {
            name: getattr(decoder.self_attn, name, None) or getattr(decoder.mlp, name)
            for name in LINEAR_INPUTS
        }
        norms = {name: getattr(decoder, attribute) for name, attribute in NORM_WEIGHTS.items()}
        captured[layer] = {name: _array(module.weight) for name, module in (linear | norms).items()}
    return captured


def _hook_layer(decoder: Any, tensors: Tensors) -> list[Any]:
    """Record one decoder layer into `tensors` and return the handles of the hooks."""
    attention, mlp = decoder.self_attn, decoder.mlp

    def record_input(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            tensors[name] = _array(inputs[0][0])

        return hook

    def record_output(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            tensors[name] = _array(output[0])

        return hook

    def record_heads(module: Any, inputs: Any, keywords: Any, output: Any) -> None:
        for name in ("q_before_rope", "k_before_rope", "v"):
            tensors[name] = tensors[name].reshape(len(tensors[name]), -1, SMOLLM2.head_size)
        tensors["q"], tensors["k"] = _rotate(
            tensors["q_before_rope"], tensors["k_before_rope"], keywords["position_embeddings"]
        )

    return [
        decoder.input_layernorm.register_forward_hook(record_input("states_in")),
        attention.q_proj.register_forward_hook(record_input("attention_input")),
        attention.q_proj.register_forward_hook(record_output("q_before_rope")),
        attention.k_proj.register_forward_hook(record_output("k_before_rope")),
        attention.v_proj.register_forward_hook(record_output("v")),
        attention.o_proj.register_forward_hook(record_input("head_outputs")),
        attention.o_proj.register_forward_hook(record_output("attention_output")),
        attention.register_forward_hook(record_heads, with_kwargs=True),
        mlp.up_proj.register_forward_hook(record_input("feed_forward_input")),
        mlp.down_proj.register_forward_hook(record_input("feed_forward_product")),
        decoder.register_forward_hook(record_output("states_out")),
    ]


def _rotate(
    q: np.ndarray, k: np.ndarray, position_embeddings: tuple["Tensor", "Tensor"]
) -> tuple[np.ndarray, np.ndarray]:
    """Apply the model's rotary embedding to queries and keys of axes token, head, element.

    There is no module between the projections and the scores, so no hook can record the rotated
    values. The rotation operates on each pair of elements separately: the model's own function,
    applied again to the same numbers, returns the same bits.
    """
    import torch
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    before = (torch.from_numpy(q)[None], torch.from_numpy(k)[None])
    rotated_q, rotated_k = apply_rotary_pos_emb(*before, *position_embeddings, unsqueeze_dim=2)
    return _array(rotated_q[0]), _array(rotated_k[0])


def _array(tensor: "Tensor") -> np.ndarray:
    """Return a float32 copy, because the model reuses its buffers."""
    return tensor.detach().numpy().astype(np.float32, copy=True)
