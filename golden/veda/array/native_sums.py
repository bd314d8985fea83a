"""The array's sums in the processor's own arithmetic: the same order, many times faster.

A product of two FP16 numbers is exact in FP32, and a sum of such products is a multiple of 2**-48,
so it is never subnormal. IEEE 754 specifies every result except the code of a NaN, so the
processor's additions equal those of `golden.arith.float_add`. A format that the processor does not
have is rounded after an addition in float64, whose 53 bits are more than twice the format's: double
rounding then equals single rounding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_round import encode, native_codes
from hdl.arith.float_format import BINARY32, FP29, FloatFormat
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters

Codes = NDArray[np.uint64]
Singles = NDArray[np.float32]
Numbers = NDArray[np.floating]

FORMATS = (BINARY32, FP29)
"""The sum formats that this module supports."""

MATRIX = 1 << 16
"""Minimum size for conversion by PyTorch: it is ten times as fast, but takes time to import."""

PIECE = 1 << 14
"""Elements that one thread converts: several threads wait for each other if the cores are busy, as
they are during a simulation."""


def inner_products(
    p: FlexiblePeArrayParameters, vectors: NDArray[Any], weights: NDArray[Any], split: NDArray[Any]
) -> Codes:
    """Return the same as `flexible_pe_array.inner_products`."""
    with np.errstate(invalid="ignore", over="ignore"):
        terms = _summable(p.sum_format, singles(vectors) * singles(weights))
        terms = terms.reshape(-1, p.planes, p.plane_width)
        # Rows and columns are powers of two: the tree over a row and that over the rows are one.
        while terms.shape[-1] > 1:
            terms = _rounded(p.sum_format, terms[..., 0::2] + terms[..., 1::2])
        planes = terms[..., 0]
        if p.planes == 2:
            together = _rounded(p.sum_format, planes[:, 0] + planes[:, 1])
            planes[:, 0] = np.where(split == 1, planes[:, 0], together)
    return _codes(p.sum_format, planes)


def outer_sums(p: FlexiblePeArrayParameters, scalars: NDArray[Any], weights: NDArray[Any]) -> Codes:
    """Return the same as `flexible_pe_array.outer_sums`."""
    elements, columns = weights.shape
    factors = singles(scalars)[:, :, np.newaxis]
    rows = singles(weights).reshape(elements, p.planes, -1)
    # Partial sum i mod add_stages accumulates element i; one without an element is -0.
    nothing = np.full((p.add_stages, *rows.shape[1:]), -0.0, np.float32)
    partial = _summable(p.sum_format, nothing)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, elements, p.add_stages):
            products = rows[first : first + p.add_stages] * factors[first : first + p.add_stages]
            # The first product of a partial sum is added to -0, which changes nothing.
            added = partial[: len(products)]
            added += products
            _rounded(p.sum_format, added)
        total, *rest = np.roll(partial, -(elements % p.add_stages), axis=0)
        for part in rest:
            total = _rounded(p.sum_format, total + part)
    return _codes(p.sum_format, total.reshape(columns))


def singles(codes: NDArray[Any]) -> Singles:
    """Return FP16 codes as FP32 numbers."""
    halves = np.asarray(codes).astype(np.uint16, copy=False).view(np.float16)
    if halves.size < MATRIX:
        return halves.astype(np.float32)
    import torch

    source = torch.from_numpy(np.ascontiguousarray(halves)).view(-1)
    numbers = torch.empty(source.shape, dtype=torch.float32)
    for piece, result in zip(source.split(PIECE), numbers.split(PIECE), strict=True):
        result.copy_(piece)
    return numbers.numpy().reshape(halves.shape)


def _summable(sum_format: FloatFormat, products: Singles) -> Numbers:
    """Convert products to the type in which they are added."""
    return products if sum_format == BINARY32 else products.astype(np.float64)


def _rounded(sum_format: FloatFormat, sums: Numbers) -> Numbers:
    """Round float64 sums in place, to nearest, ties to even; FP32 sums are already rounded."""
    if sum_format == BINARY32:
        return sums
    drop = 52 - sum_format.mantissa_bits
    codes = sums.view(np.int64)
    # A carry out of the mantissa increments the exponent; infinities and quiet NaNs drop no bits.
    codes += (1 << drop - 1) - 1 + (codes >> drop & 1)
    codes &= -1 << drop
    return sums


def _codes(sum_format: FloatFormat, sums: Numbers) -> Codes:
    """Return the codes of sums."""
    if sum_format == BINARY32:
        return native_codes(BINARY32, sums)
    return encode(sum_format, sums)
