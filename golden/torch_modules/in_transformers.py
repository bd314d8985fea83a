"""The modules inside a model of `transformers`: its attention or its linear layers replaced."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from golden.meadow.quantisation import linear_layers
from golden.study.attention import attending
from golden.torch_modules.attentions import ExactAttention
from golden.torch_modules.linears import ExactLinear
from hdl.parameters import require

Heads = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of a layer."""

Attention = Callable[..., Tensor]


class LayerAttention:
    """An attention function for `transformers` that calls one module per layer.

    Parameters
    ----------
    modules : Sequence[Callable]
        The module of each layer.
    """

    def __init__(self, modules: Sequence[Attention]) -> None:
        self.modules = tuple(modules)

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
        """Attend: query [batch, heads, tokens, size]; the result has tokens before heads."""
        own = self.modules[module.layer_idx]
        return own(query, key, value, scaling=scaling).transpose(1, 2), None


def _refuse_padding(_module: Any, _given: Any, named: dict[str, Any]) -> None:
    """Refuse a call with padding or a cache, neither of which reaches the attention function."""
    mask = named.get("attention_mask")
    padded = isinstance(mask, Tensor) and not bool(mask.bool().all())
    require(not padded, "the sequences of a batch must have no padding", mask)


@contextmanager
def replaced_attention(model: Any, modules: Sequence[ExactAttention]) -> Iterator[None]:
    """Replace the attention of a model's layers by modules inside the context.

    Call the model with ``use_cache=False``, since each call begins with empty caches, and within
    `torch.no_grad`.

    Parameters
    ----------
    model
        A Llama-style model of `transformers`.
    modules : Sequence[ExactAttention]
        One module per layer; a module without a state may occur several times.

    Raises
    ------
    ValueError
        If the number of modules is not that of the layers.
    """
    layers = model.config.num_hidden_layers
    require(len(modules) == layers, f"modules must be one per layer, {layers}", len(modules))
    with ExitStack() as undo:
        hook = model.model.register_forward_pre_hook(_refuse_padding, with_kwargs=True)
        undo.callback(hook.remove)
        undo.enter_context(attending(model, LayerAttention(modules)))
        yield


def heads_of(model: Any, tokens: Tensor) -> list[Heads]:
    """Return queries, keys and values of each layer of a model for a text, to calibrate modules.

    Parameters
    ----------
    model
        A model of `transformers`, with its own attention.
    tokens : Tensor
        int64 [batch, tokens].
    """
    from transformers.models.llama.modeling_llama import eager_attention_forward

    found: list[Heads] = []

    def watched(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **rest: Any
    ) -> Any:
        found.append((query, key, value))
        count = query.shape[2]
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        causal = torch.zeros(count, count, dtype=query.dtype).masked_fill(later, -torch.inf)
        return eager_attention_forward(module, query, key, value, causal[None, None], **rest)

    with torch.no_grad(), attending(model, watched):
        model.model(input_ids=tokens, use_cache=False)
    return found


@contextmanager
def replaced_linears(
    model: Any, make: Callable[[str, torch.nn.Linear], ExactLinear | None]
) -> Iterator[dict[str, ExactLinear]]:
    """Replace the decoder's linear layers inside the context; yield the modules by name.

    Parameters
    ----------
    model
        A Llama-style model of `transformers`.
    make : Callable
        Returns the module for a name such as ``"3.q_proj"`` and its layer, or None to keep it.
    """
    made: dict[str, ExactLinear] = {}
    with ExitStack() as undo:
        for name, linear in list(linear_layers(model)):
            if (module := make(name, linear)) is None:
                continue
            number, part = name.split(".")
            layer = model.model.layers[int(number)]
            owner = layer.self_attn if hasattr(layer.self_attn, part) else layer.mlp
            undo.callback(setattr, owner, part, linear)
            setattr(owner, part, module)
            made[name] = module
        yield made
