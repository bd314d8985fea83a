"""8-bit weights and activations by SmoothQuant, inside a model of `transformers` (Section 6.1).

An input channel with large activations makes the common scale of all channels coarse. SmoothQuant
divides the channel by ``s = max|x|**a / max|w|**(1 - a)`` and multiplies its weights by ``s``, so
that the product does not change. The division is folded into the source of the activations: the
weights of a norm, the rows of `v_proj`, the rows of `up_proj`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden.meadow.packing.chunks import Weights
from golden.meadow.packing.model_file import quantised
from hdl.parameters import require

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
INPUTS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
"""Groups of linear layers that share an input."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Quantisation scheme of a model.

    Parameters
    ----------
    scale : str
        ``"tensor"`` or ``"channel"``: granularity of the weights' scales.
    smoothing : float
        SmoothQuant's exponent a, from 0 to 1; None for no smoothing.
    activations : bool
        Whether the inputs of linear layers have 8 bits too, with one fixed scale per tensor.
    """

    scale: str = "tensor"
    smoothing: float | None = 0.5
    activations: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        a = self.smoothing
        require(a is None or 0 <= a <= 1, "smoothing must be from 0 to 1, or none", a)


def linear_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the decoder's linear layers by names such as ``3.q_proj``."""
    for number, layer in enumerate(model.model.layers):
        for name in LINEARS:
            part = layer.self_attn if name in LINEARS[:4] else layer.mlp
            yield f"{number}.{name}", getattr(part, name)


def largest_inputs(model: Any, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the largest magnitude of each input channel of each linear layer over a text."""
    import torch

    found: dict[str, Any] = {}

    def hook(name: str) -> Callable[[Any, Any], None]:
        def observe(_module: Any, inputs: Any) -> None:
            most = inputs[0].abs().amax(dim=(0, 1))
            found[name] = torch.maximum(found[name], most) if name in found else most

        return observe

    with ExitStack() as hooks, torch.inference_mode():
        for name, linear in linear_layers(model):
            hooks.callback(linear.register_forward_pre_hook(hook(name)).remove)
        model(input_ids=torch.tensor(tokens, dtype=torch.long)[None], use_cache=False)
    return {name: most.numpy() for name, most in found.items()}


def smooth(model: Any, largest: Mapping[str, np.ndarray], exponent: float) -> dict[str, np.ndarray]:
    """Smooth the input channels of every linear layer in place; return their new maxima.

    Parameters
    ----------
    model
        A Llama-style model, whose function does not change.
    largest : Mapping
        Result of `largest_inputs`.
    exponent : float
        SmoothQuant's exponent a.
    """
    import torch

    evened = dict(largest)
    heads, shared = model.config.num_attention_heads, model.config.num_key_value_heads
    for number, layer in enumerate(model.model.layers):
        linears = {name: getattr(layer.self_attn, name) for name in LINEARS[:4]}
        linears |= {name: getattr(layer.mlp, name) for name in LINEARS[4:]}
        for names in INPUTS:
            inputs = torch.tensor(largest[f"{number}.{names[0]}"])
            weights = torch.stack([linears[name].weight.abs().amax(0) for name in names]).amax(0)
            if names == ("o_proj",):
                # Query heads that share values must have the same factors.
                inputs, weights = (_over_heads(v, heads, shared) for v in (inputs, weights))
            ratio = inputs.clamp(min=1e-5) ** exponent / weights.clamp(min=1e-5) ** (1 - exponent)
            with torch.no_grad():
                for name in names:
                    linears[name].weight.mul_(ratio)
                    evened[f"{number}.{name}"] = largest[f"{number}.{name}"] / ratio.numpy()
                if names == INPUTS[0]:
                    layer.input_layernorm.weight.div_(ratio)
                elif names == INPUTS[2]:
                    layer.post_attention_layernorm.weight.div_(ratio)
                elif names == ("o_proj",):
                    size = len(ratio) // heads
                    one_each = ratio.reshape(shared, heads // shared, size)[:, 0].reshape(-1)
                    linears["v_proj"].weight.div_(one_each[:, None])
                else:
                    linears["up_proj"].weight.div_(ratio[:, None])
    return evened


def _over_heads(values: Any, heads: int, shared: int) -> Any:
    """Return the maximum of each channel over the query heads of its key/value head."""
    grouped = values.reshape(shared, heads // shared, -1)
    return grouped.amax(1, keepdim=True).expand_as(grouped).reshape(-1)


@contextmanager
def quantised_model(model: Any, scheme: Scheme, tokens: np.ndarray) -> Iterator[dict[str, Weights]]:
    """Quantise a model in place within the context; yield its integers by name.

    Parameters
    ----------
    model
        A Llama-style model, which is restored at the end.
    scheme : Scheme
        Granularity, smoothing and activations.
    tokens : numpy.ndarray
        A text on which the scales of the activations are calibrated.
    """
    import torch

    kept = {name: value.clone() for name, value in model.state_dict().items()}
    largest = largest_inputs(model, tokens)
    if scheme.smoothing is not None:
        largest = smooth(model, largest, scheme.smoothing)
    integers: dict[str, Weights] = {}
    with ExitStack() as stack:
        stack.callback(model.load_state_dict, kept)
        for name, linear in linear_layers(model):
            integers[name], scales = quantised(linear.weight.detach().numpy(), scheme.scale)
            values = integers[name].astype(np.float32) * scales.reshape(-1, 1)
            with torch.no_grad():
                linear.weight.copy_(torch.tensor(values))
            if scheme.activations:
                step = float(largest[name].max()) / 127
                hook = linear.register_forward_pre_hook(_rounding(step))
                stack.callback(hook.remove)
        yield integers


def _rounding(step: float) -> Callable[[Any, Any], Any]:
    """Return a hook that rounds a layer's inputs to 8 bits, half to even, with saturation."""

    def rounded(_module: Any, inputs: Any) -> Any:
        return ((inputs[0] / step).round().clamp(-127, 127) * step,)

    return rounded
