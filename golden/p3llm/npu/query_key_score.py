"""Model of scores of FP16 queries and keys."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_tree import float_tree
from golden.arith.float_values import values
from hdl.arith.float_format import BINARY32
from hdl.p3llm.parameters import P3llmParameters

Halves = NDArray[np.uint16]
Singles = NDArray[np.float32]


def query_key_score(queries: Halves, keys: Halves, p: P3llmParameters) -> Singles:
    """Return scores in base 2, float32, of dot products along the last axis.

    Products are exact; each slice of `lanes` is added in pairs, then the sums of the slices.
    """
    products = (values(queries) * values(keys)).astype(np.float32).view(np.uint32)
    slices = products.reshape(*products.shape[:-1], -1, p.lanes)
    total = float_tree(BINARY32, float_tree(BINARY32, slices)).astype(np.uint32).view(np.float32)
    return total * np.float32(np.log2(np.e) / np.sqrt(p.head_size))
