"""Model of VEDA's flexible-product array: every sum in the order of the array's adders."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_convert import float_convert
from golden.arith.float_multiply import float_multiply
from golden.arith.float_tree import float_tree
from golden.arith.float_widening_multiply import float_widening_multiply
from golden.veda.array import native_sums
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.veda.array.array_parameters import ArrayMode, FlexiblePeArrayParameters

Codes = NDArray[np.uint64]


@dataclass
class Beats:
    """A sequence of beats, one array per field, and the vectors that they load.

    Members
    -------
    mode, split, load_vector, first, last : numpy.ndarray
        One value per beat.
    scalars, weights : numpy.ndarray
        FP16 codes, shape (beats, planes) and (beats, width).
    vectors : numpy.ndarray
        FP16 codes, shape (vectors, width).
    """

    mode: Codes
    split: Codes
    load_vector: Codes
    first: Codes
    last: Codes
    scalars: Codes
    weights: Codes
    vectors: Codes

    def __len__(self) -> int:
        """Return the number of beats."""
        return len(self.mode)


@dataclass
class Outcome:
    """Outputs of the array: FP16 codes of dot products and of rows, each in order."""

    dot_products: list[Codes] = field(default_factory=list)
    results: list[Codes] = field(default_factory=list)


def joined(parts: Iterable[Beats]) -> Beats:
    """Return the concatenation of several sequences of beats."""
    parts = list(parts)
    return Beats(
        *(np.concatenate([getattr(part, name.name) for part in parts]) for name in fields(Beats))
    )


def run(p: FlexiblePeArrayParameters, beats: Beats) -> Outcome:
    """Return the array's outputs for beats, of which the first loads a vector or starts a row."""
    outcome = Outcome()
    inner = np.flatnonzero(beats.mode == ArrayMode.INNER.value)
    stationary = _stationary(p, beats)
    sums = inner_products(p, stationary[inner], beats.weights[inner], beats.split[inner])
    outcome.dot_products = list(_accumulated(p, sums, beats.first[inner], beats.last[inner]))
    begin = 0
    for beat in np.flatnonzero(beats.mode == ArrayMode.OUTER.value):
        if beats.first[beat]:
            begin = beat
        if beats.last[beat]:
            row = slice(begin, beat + 1)
            outcome.results.append(outer_product(p, beats.scalars[row], beats.weights[row]))
    return outcome


def inner_products(
    p: FlexiblePeArrayParameters, vectors: NDArray[Any], weights: NDArray[Any], split: NDArray[Any]
) -> Codes:
    """Return the sums of the products, in the format of the sums.

    Parameters
    ----------
    p : FlexiblePeArrayParameters
        Dimensions of the array.
    vectors, weights : numpy.ndarray
        FP16 codes, shape (beats, width).
    split : numpy.ndarray
        Whether each plane's sum is a dot product of its own.

    Returns
    -------
    numpy.ndarray
        Shape (beats, planes).
    """
    if p.sum_format in native_sums.FORMATS:
        return native_sums.inner_products(p, vectors, weights, split)
    return emulated_inner_products(p, vectors.astype("u8"), weights.astype("u8"), split)


def emulated_inner_products(
    p: FlexiblePeArrayParameters, vectors: Codes, weights: Codes, split: Codes
) -> Codes:
    """Return the same as `inner_products` for any sum format, computed by the adders' models."""
    products = multiply(p.sum_format, vectors, weights)
    rows = float_tree(p.sum_format, products.reshape(-1, p.planes, p.rows, p.columns))
    planes = float_tree(p.sum_format, rows)
    together = float_tree(p.sum_format, planes)
    planes[:, 0] = np.where(split == 1, planes[:, 0], together)
    return planes


def outer_product(
    p: FlexiblePeArrayParameters, scalars: NDArray[Any], weights: NDArray[Any]
) -> Codes:
    """Return a row of sums as FP16 codes.

    Parameters
    ----------
    p : FlexiblePeArrayParameters
        Dimensions of the array.
    scalars, weights : numpy.ndarray
        FP16 codes, shape (elements, planes) and (elements, columns): as many columns as the array
        has PEs, or as several rows of results together.
    """
    return float_convert(p.sum_format, BINARY16, outer_sums(p, scalars, weights))


def outer_sums(p: FlexiblePeArrayParameters, scalars: NDArray[Any], weights: NDArray[Any]) -> Codes:
    """Return a row of sums before rounding, in the format of the sums."""
    if p.sum_format in native_sums.FORMATS:
        return native_sums.outer_sums(p, scalars, weights)
    return emulated_outer_sums(p, scalars.astype("u8"), weights.astype("u8"))


def emulated_outer_sums(p: FlexiblePeArrayParameters, scalars: Codes, weights: Codes) -> Codes:
    """Return the same as `outer_sums` for any sum format, computed by the adders' models."""
    columns = weights.shape[1]
    own = np.repeat(scalars, columns // p.planes, axis=1)
    products = multiply(p.sum_format, own, weights)
    nothing = np.uint64(p.sum_format.sign_mask)
    partial = np.full((p.add_stages, columns), nothing)
    for index, product in enumerate(products):
        place = index % p.add_stages
        # The first product of a partial sum is added to -0, which changes nothing.
        partial[place] = float_add(p.sum_format, product, partial[place])
    oldest = len(products) % p.add_stages
    total, *rest = np.roll(partial, -oldest, axis=0)
    for part in rest:
        total = float_add(p.sum_format, total, part)
    return total


def multiply(sum_format: FloatFormat, a: Codes, b: Codes) -> Codes:
    """Return the codes of products of FP16 numbers in the format of the sums."""
    if sum_format == BINARY16:
        return float_multiply(BINARY16, a, b)
    return float_widening_multiply(BINARY16, sum_format, a, b)


def _stationary(p: FlexiblePeArrayParameters, beats: Beats) -> Codes:
    """Return the stationary vector of each beat."""
    vectors = iter(beats.vectors)
    held = np.zeros(p.width, np.uint64)
    seen = np.zeros((len(beats), p.width), np.uint64)
    for beat, mode in enumerate(beats.mode):
        if mode == ArrayMode.OUTER.value:
            held = np.repeat(beats.scalars[beat], p.plane_width)
        elif beats.load_vector[beat]:
            held = next(vectors)
        seen[beat] = held
    return seen


def _accumulated(
    p: FlexiblePeArrayParameters, sums: Codes, first: Codes, last: Codes
) -> Iterator[Codes]:
    """Accumulate the slices of long dot products, and round complete ones."""
    waiting: deque[Codes] = deque()
    for total, begins, ends in zip(sums, first, last, strict=True):
        if not begins:
            total = float_add(p.sum_format, total, waiting.popleft())
        if ends:
            yield float_convert(p.sum_format, BINARY16, total)
        else:
            waiting.append(total)
