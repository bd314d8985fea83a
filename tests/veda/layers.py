"""Matrices of decoder layers for tests."""

import numpy as np

from golden.llm.layers import LayerWeights
from golden.veda.veda import Codes
from hdl.veda.parameters import VedaParameters


def random_weights(p: VedaParameters, seed: int) -> LayerWeights:
    """Return matrices of normal numbers, none of which is zero."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> Codes:
        values = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float16).view(np.uint16)
        return np.maximum(values, 1)

    return LayerWeights(
        query=matrix(p.hidden_size, p.heads, p.head_size),
        key=matrix(p.hidden_size, p.kv_heads, p.head_size),
        value=matrix(p.hidden_size, p.kv_heads, p.head_size),
        output=matrix(p.heads, p.head_size, p.hidden_size),
        gate=matrix(p.hidden_size, p.intermediate_size),
        up=matrix(p.hidden_size, p.intermediate_size),
        down=matrix(p.intermediate_size, p.hidden_size),
    )
