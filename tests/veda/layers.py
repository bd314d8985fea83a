"""Matrices of decoder layers for tests."""

import numpy as np

from golden.llm.layers import LayerWeights
from golden.veda.veda import Codes
from hdl.veda.parameters import VedaParameters


def random_weights(p: VedaParameters, seed: int) -> LayerWeights:
    """Return matrices of normal numbers, none of which is zero, in the form of `DecoderLayer`."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> Codes:
        values = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float16).view(np.uint16)
        return np.maximum(values, 1)

    joined = (p.biases + p.query_size, p.hidden_size)
    return LayerWeights(
        query=matrix(p.row_lines, p.heads, p.head_size),
        key=matrix(p.row_lines, p.kv_heads, p.head_size),
        value=matrix(p.row_lines, p.kv_heads, p.head_size),
        output=matrix(*(joined if p.biases else (p.heads, p.head_size, p.hidden_size))),
        gate=matrix(p.row_lines, p.intermediate_size if p.gated else 0),
        up=matrix(p.row_lines, p.intermediate_size),
        down=matrix(p.biases + p.intermediate_size, p.hidden_size),
    )
