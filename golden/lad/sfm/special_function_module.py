"""LAD's special functions: float64 reference and bit-exact model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_exp import exp
from golden.arith.float_sqrt import reciprocal_sqrt
from golden.arith.float_values import ONE, codes, values
from golden.arith.takagi_reciprocal import reciprocal
from golden.lad.vpu.vector_processing_unit import dot_product, element_wise
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]
Reals = NDArray[np.float64]


def exact_norm(x: Any, weight: Any, bias: Any, epsilon: Any, *, rms: bool) -> Reals:
    """Return rows [..., width] normalised, in float64."""
    row = values(x)
    if not rms:
        row = row - row.mean(axis=-1, keepdims=True)
    square = np.mean(row**2, axis=-1, keepdims=True) + values(epsilon)[..., np.newaxis]
    result = row / np.sqrt(square) * values(weight)
    return result if rms else result + values(bias)


def exact_rotary(x: Any, cosine: Any, sine: Any) -> Reals:
    """Return vectors rotated by their angles, in float64."""
    return values(x) * values(cosine) + values(rotated(x)) * values(sine)


def exact_silu(x: Any, up: Any) -> Reals:
    """Return ``x / (1 + exp(-x)) * up``, in float64."""
    with np.errstate(over="ignore"):
        return values(x) / (1 + np.exp(-values(x))) * values(up)


def rotated(x: Any) -> Codes:
    """Return vectors with exchanged halves, the former upper half negated."""
    lower, upper = np.split(np.asarray(x, np.uint16), 2, axis=-1)
    return np.concatenate([upper ^ np.uint16(0x8000), lower], axis=-1)


def add(a: Any, b: Any) -> Codes:
    """Return the codes of sums."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    return float_add(BINARY16, a, b).astype(np.uint16)


def row_scale(x: Codes) -> Codes:
    """Return the power of two [..., 1] that brings a row's largest element to between 1 and 2.

    Zeros and subnormal numbers count as the smallest normal one; 2**-15 is the smallest scale.
    """
    largest = (x >> 10 & 31).max(axis=-1, keepdims=True).astype(np.int64)
    return codes(2.0 ** np.clip(15 - largest, -15, 14))


def norm(x: Any, weight: Any, bias: Any, epsilon: Any, *, head_size: int, rms: bool) -> Codes:
    """Return rows [..., width] normalised, bit-exact.

    Parameters
    ----------
    x, weight, bias : array [..., width]
        FP16 codes; the bias is used without `rms` only.
    epsilon : array [...]
        FP16 codes.
    head_size : int
        Elements per slice: the sums are added slice by slice.
    rms : bool
        RMSNorm: do not subtract the mean.
    """
    x = np.asarray(x, np.uint16)
    scale = row_scale(x)
    row = element_wise(scale, x)
    if not rms:
        ones = np.full(head_size, ONE, np.uint16)
        mean = _mean(row, np.broadcast_to(ones, _sliced(row, head_size).shape), head_size)
        row = add(row, mean ^ 0x8000)
    square = _mean(row, _sliced(row, head_size), head_size)
    floor = element_wise(element_wise(np.asarray(epsilon)[..., np.newaxis], scale), scale)
    deviation = reciprocal_sqrt(add(square, floor))
    result = element_wise(weight, element_wise(deviation, row))
    return result if rms else add(result, bias)


def _sliced(row: Codes, head_size: int) -> Codes:
    return row.reshape(*row.shape[:-1], -1, head_size)


def _mean(row: Codes, other: Codes, head_size: int) -> Codes:
    """Return the mean [..., 1] of products: slices added sequentially, times 1 / width."""
    terms = dot_product(other, _sliced(row, head_size))
    total = np.zeros(terms.shape[:-1], np.uint16)
    for part in np.moveaxis(terms, -1, 0):
        total = add(total, part)
    return element_wise(total, codes(1 / row.shape[-1]))[..., np.newaxis]


def rotary(x: Any, cosine: Any, sine: Any) -> Codes:
    """Return vectors rotated by their angles."""
    return add(element_wise(cosine, x), element_wise(sine, rotated(x)))


def silu(x: Any, up: Any) -> Codes:
    """Return ``x / (1 + exp(-x)) * up``."""
    x = np.asarray(x, np.uint16)
    sigmoid = reciprocal(add(exp(x ^ 0x8000), ONE))
    return element_wise(up, element_wise(sigmoid, x))
