"""GPTQ (Frantar et al., ICLR 2023): weights rounded column by column, errors moved to the others.

The error of a rounded column is subtracted from the columns that are not yet rounded, in the
proportion that changes the outputs on a calibration text least. The rivals QuaRot and QServe of
Table IV round their weights with it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Columns whose errors are moved to all later columns at once; groups do not cross blocks."""
DAMPING = 0.01
"""Share of the mean diagonal that is added to the diagonal of the products."""
STEPS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
"""A layer's matrices in the order of rounding; those of a step have the same inputs."""

Rounding = Callable[[Tensor], Tensor]
"""Function that rounds a column of weights [outputs]."""
GroupRounding = Callable[[Tensor], Rounding]
"""Function from a group's weights [outputs, inputs] to the rounding of its columns."""


def gptq(weights: Tensor, products: Tensor, group: int, rounding: GroupRounding) -> Tensor:
    """Return rounded weights [outputs, inputs].

    Parameters
    ----------
    weights : Tensor
        Shape (outputs, inputs).
    products : Tensor
        Sum of x x' over the inputs x of a calibration text, shape (inputs, inputs).
    group : int
        Columns per group; the first column of a group computes the group's scales.
    rounding : Callable
        Rounding of a group, computed from its weights with the errors of all earlier groups.
    """
    left = weights.double().clone()
    damped = products.double().clone()
    dead = damped.diagonal() == 0
    left[:, dead] = 0
    damped.diagonal()[dead] = 1
    damped.diagonal().add_(DAMPING * damped.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    factor = torch.linalg.cholesky(inverse, upper=True)
    result = torch.zeros_like(left)
    for first in range(0, left.shape[1], BLOCK):
        last = min(first + BLOCK, left.shape[1])
        errors = torch.zeros_like(left[:, first:last])
        for column in range(first, last):
            if column % group == 0:
                own = rounding(left[:, column : column + group])
            result[:, column] = own(left[:, column])
            error = (left[:, column] - result[:, column]) / factor[column, column]
            left[:, column + 1 : last] -= torch.outer(error, factor[column, column + 1 : last])
            errors[:, column - first] = error
        left[:, last:] -= errors @ factor[first:last, last:]
    return result.to(weights.dtype)


@contextmanager
def watched_products(module: torch.nn.Linear) -> Iterator[Tensor]:
    """Sum x x' over the inputs x of a layer inside the context."""
    size = module.in_features
    total = torch.zeros((size, size), dtype=torch.float64)

    def seen(_: Any, inputs: tuple[Tensor, ...]) -> None:
        own = inputs[0].flatten(0, -2).double()
        total.add_(own.T @ own)

    hook = module.register_forward_pre_hook(seen)
    try:
        yield total
    finally:
        hook.remove()


def layer_inputs(model: Any, tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """Return the first layer's hidden states of a text, and the arguments of all layers."""
    taken: list[tuple[Tensor, dict[str, Any]]] = []

    class Stopped(Exception):
        """The first layer has its inputs; the other layers need not run."""

    def take(_: Any, states: tuple[Tensor, ...], arguments: dict[str, Any]) -> None:
        taken.append((states[0], arguments))
        raise Stopped

    hook = model.model.layers[0].register_forward_pre_hook(take, with_kwargs=True)
    try:
        model.model(input_ids=tokens[None], use_cache=False)
    except Stopped:
        pass
    finally:
        hook.remove()
    return taken[0]


def round_layers(
    model: Any,
    tokens: Tensor,
    rounding: Callable[[Tensor], tuple[int, GroupRounding]],
    done: Callable[[], None],
) -> None:
    """Round all linear layers of a model in place, in the order of the text's states.

    Each step's inputs are those of the rounded matrices upstream.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens : Tensor
        Token numbers of the calibration text.
    rounding : Callable
        Function from a matrix to its columns per group and the rounding of a group.
    done : Callable
        Called after each layer.
    """
    with torch.inference_mode():
        states, arguments = layer_inputs(model, tokens)
        for layer in model.model.layers:
            modules = {name.rpartition(".")[2]: own for name, own in layer.named_modules()}
            for names in STEPS:
                _round_step([modules[name] for name in names], layer, states, arguments, rounding)
            states = layer(states, **arguments)
            done()


def _round_step(
    modules: Sequence[torch.nn.Linear],
    layer: Any,
    states: Tensor,
    arguments: dict[str, Any],
    rounding: Callable[[Tensor], tuple[int, GroupRounding]],
) -> None:
    """Round matrices that have the same inputs."""
    with watched_products(modules[0]) as products:
        layer(states, **arguments)
    for module in modules:
        group, own = rounding(module.weight.data)
        module.weight.data = gptq(module.weight.data, products, group, own)
