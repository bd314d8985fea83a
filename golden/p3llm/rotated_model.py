"""Models with rotated hidden states and heads, and attention over a cache of 4 bits.

The rivals QuaRot and QServe of Table IV multiply hidden states by an orthogonal matrix whose
elements have one magnitude, so that no channel has outliers. The weights absorb the rotation, and
the outputs of the model do not change.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.arith.hadamard import hadamard
from golden.p3llm.tensor_formats import asymmetric

SEED = 0
"""Of the random signs of the rotation of hidden states."""
CACHE_BITS = 4


def rotated_model(model: Any) -> Any:
    """Return a copy of a model with rotated hidden states, values and head outputs.

    The weights of the norms move into the matrices downstream, since only a norm without weights
    has the same result for all rotations. The copy's LM head has weights of its own.
    """
    found = copy.deepcopy(model)
    size = found.config.hidden_size
    signs = np.random.default_rng(SEED).choice((-1.0, 1.0), size)
    basis = _like(signs[:, np.newaxis] * hadamard(size), model)
    of_head = _like(hadamard(found.model.layers[0].self_attn.head_dim), model)
    head = torch.nn.Linear(size, found.config.vocab_size, bias=False, dtype=basis.dtype)
    head.weight.data = (found.lm_head.weight.data * found.model.norm.weight.data) @ basis
    found.lm_head = head
    found.model.norm.weight.data.fill_(1)
    found.model.embed_tokens.weight.data = found.model.embed_tokens.weight.data @ basis
    for layer in found.model.layers:
        attention, forward = layer.self_attn, layer.mlp
        for norm, modules in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (forward.gate_proj, forward.up_proj)),
        ):
            for module in modules:
                module.weight.data = (module.weight.data * norm.weight.data) @ basis
            norm.weight.data.fill_(1)
        for module in (attention.o_proj, forward.down_proj):
            module.weight.data = basis.T @ module.weight.data
        values = attention.v_proj.weight.data.unflatten(0, (-1, len(of_head)))
        attention.v_proj.weight.data = (of_head.T @ values).flatten(0, 1)
        heads = attention.o_proj.weight.data.unflatten(1, (-1, len(of_head)))
        attention.o_proj.weight.data = (heads @ of_head).flatten(1, 2)
    return found


def rotate_inputs(module: torch.nn.Linear) -> None:
    """Rotate a layer's inputs when they arrive; its weights absorb the rotation."""
    basis = _like(hadamard(module.in_features), module)
    module.weight.data = module.weight.data @ basis
    module.register_forward_pre_hook(lambda _, inputs: (inputs[0] @ basis,))


class FourBitAttention:
    """An attention function for `transformers` whose keys and values have 4 bits.

    Parameters
    ----------
    clip : float
        Share of the range of a vector that its codes represent.
    rotated : bool
        Rotate queries and keys after the rotary embedding.
    """

    def __init__(self, *, clip: float, rotated: bool) -> None:
        self.clip, self.rotated = clip, rotated

    def __call__(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Attend: query [texts, heads, tokens, size]; key, value with fewer heads."""
        if self.rotated:
            basis = _like(hadamard(key.shape[-1]), query)
            query, key = query @ basis, key @ basis
        output = torch.nn.functional.scaled_dot_product_attention(
            query,
            self._stored(key),
            self._stored(value),
            is_causal=True,
            scale=scaling,
            enable_gqa=True,
        )
        return output.transpose(1, 2), None

    def attend_in(self, model: Any) -> None:
        """Make this the attention of a model."""
        from transformers import AttentionInterface

        name = f"systola_four_bits_{self.clip}_{self.rotated}"
        AttentionInterface.register(name, self)
        model.config._attn_implementation = name

    def _stored(self, vectors: Tensor) -> Tensor:
        """Return vectors as they are cached: asymmetric, with a scale for each head and token."""
        codes, scales = asymmetric(vectors, CACHE_BITS, self.clip)
        return codes * scales


def _like(matrix: np.ndarray, other: Any) -> Tensor:
    """Return a matrix with the type of a tensor, or of a module's weights."""
    weight = other if isinstance(other, Tensor) else next(other.parameters())
    return torch.tensor(matrix, dtype=weight.dtype)
