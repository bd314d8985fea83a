"""LAD's vector processing unit: float64 reference and bit-exact model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_multiply import float_multiply
from golden.arith.float_tree import float_tree
from golden.arith.float_values import values
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]
Reals = NDArray[np.float64]


def exact_dot_product(a: Any, b: Any) -> Reals:
    """Return the dot products of FP16 codes over the last axis, in float64."""
    return np.sum(values(a) * values(b), axis=-1)


def dot_product_bound(a: Any, b: Any) -> Reals:
    """Return upper bounds of the errors of dot products without overflow."""
    size = np.sum(np.abs(values(a) * values(b)), axis=-1)
    roundings = (np.shape(a)[-1] - 1).bit_length() + 1
    # The error of a product below the normal numbers is at most half of the smallest subnormal.
    return roundings * 2.0**-11 * 1.01 * size + np.shape(a)[-1] * 2.0**-25


def element_wise(a: Any, b: Any) -> Codes:
    """Return the codes of the products of vectors, or of scalars [..., 1] and vectors."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    return float_multiply(BINARY16, a, b).astype(np.uint16)


def dot_product(a: Any, b: Any) -> Codes:
    """Return the codes of dot products over the last axis: products, sums of adjacent pairs."""
    return float_tree(BINARY16, element_wise(a, b)).astype(np.uint16)
