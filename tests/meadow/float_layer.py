"""A layer of `transformers` in the shapes of MEADOW's float64 model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from golden.meadow.layer_quantisation import RealLayer
from hdl.meadow.parameters import MeadowParameters
from tests.llm.opt_layer import numbers


def float_layer(linears: Mapping[str, Any], norms: Sequence[Any], p: MeadowParameters) -> RealLayer:
    """Return a layer with biases; the query matrix contains the scale of the scores."""
    heads = (p.heads, p.head_size)
    matrices, biases = {}, {}
    for name, linear in linears.items():
        matrix, bias = numbers(linear.weight).T, numbers(linear.bias)
        if name in ("query", "key", "value"):
            matrix, bias = matrix.reshape(-1, *heads), bias.reshape(heads)
        if name == "query":
            matrix, bias = matrix / math.sqrt(p.head_size), bias / math.sqrt(p.head_size)
        matrices[name] = matrix.reshape(*heads, -1) if name == "output" else matrix
        biases[name] = bias
    weights, offsets = ([numbers(getattr(one, n)) for one in norms] for n in ("weight", "bias"))
    return RealLayer(matrices, (weights[0], weights[1]), (offsets[0], offsets[1]), biases)
