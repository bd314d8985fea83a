"""LAD's linear layers: float64 reference and bit-exact model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_values import values
from golden.lad.vpu.vector_processing_unit import dot_product
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]


def exact_linear(weights: Any, inputs: Any) -> NDArray[np.float64]:
    """Return inputs [samples, columns] times the transpose of weights [rows, columns]."""
    return values(inputs) @ values(weights).T


def sliced(matrix: Any, head_size: int) -> Codes:
    """Return rows [..., columns] as slices [..., slices, head_size], padded with zeros."""
    matrix = np.asarray(matrix, np.uint16)
    missing = -matrix.shape[-1] % head_size
    padding = [(0, 0)] * (matrix.ndim - 1) + [(0, missing)]
    return np.pad(matrix, padding).reshape(*matrix.shape[:-1], -1, head_size)


def linear(weights: Any, inputs: Any, *, head_size: int) -> Codes:
    """Return outputs [samples, rows], bit-exact: the slices are added sequentially.

    Parameters
    ----------
    weights, inputs : array [rows, columns], [samples, columns]
        FP16 codes.
    head_size : int
        Elements per slice.
    """
    left, right = sliced(weights, head_size), sliced(inputs, head_size)
    total = np.zeros((right.shape[0], left.shape[0]), np.uint16)
    for place in range(left.shape[-2]):
        terms = dot_product(left[np.newaxis, :, place], right[:, np.newaxis, place])
        total = float_add(BINARY16, total, terms).astype(np.uint16)
    return total
