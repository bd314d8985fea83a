"""Stimuli of VEDA's array: SmolLM2's attention and projections, and random beats."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith import float_values
from golden.llm import open_trace
from golden.veda.array.flexible_pe_array import Beats, Codes, joined
from hdl.arith.float_format import BINARY16
from hdl.veda.array.array_parameters import ArrayMode, FlexiblePeArrayParameters
from testbenches.arith.dot_operands import hard_partners
from testbenches.packing import to_integers

LAYERS = (0, 14, 29)
TOKENS = 640
GROUP = 4
"""Heads whose scores are computed before the first of their weighted sums."""

SPECIALS = np.array([0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0001, 0x83FF], np.uint64)


@dataclass(frozen=True)
class Head:
    """One query against cached keys and values, and its probabilities; float64, channels last."""

    query: NDArray[np.float64]
    keys: NDArray[np.float64]
    values: NDArray[np.float64]
    probabilities: NDArray[np.float64]


def codes(values: NDArray[np.floating]) -> Codes:
    """Return the nearest FP16 codes, of the same type as the golden model's."""
    return float_values.codes(values).astype(np.uint64)


def real_heads(channels: int, length: int, count: int) -> list[Head]:
    """Return heads of SmolLM2's captured layers at one decode step.

    Parameters
    ----------
    channels : int
        Size of a head: up to 64, the first channels of real heads; up to 128, two concatenated
        heads, with the softmax of their common scores.
    length : int
        Cached tokens.
    count : int
        Number of heads.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    single = [(layer, (head,)) for layer in LAYERS for head in range(trace.heads)]
    double = [
        (layer, (head, other))
        for layer in LAYERS
        for head in range(trace.heads)
        for other in range(head + 1, trace.heads)
    ]
    made = []
    for layer, numbers in (single if channels <= 64 else double)[:count]:
        traces = [trace.attention_trace(layer, number) for number in numbers]
        query, keys, values = (
            np.concatenate([getattr(one, name) for one in traces], axis=1).astype(np.float64)
            for name in ("q", "k", "v")
        )
        query = query[length - 1, :channels] / np.sqrt(channels)
        keys, values = keys[:length, :channels], values[:length, :channels]
        powers = np.exp(keys @ query - np.max(keys @ query))
        made.append(Head(query, keys, values, powers / powers.sum()))
    return made


def attention(p: FlexiblePeArrayParameters, heads: list[Head], *, split: bool) -> Beats:
    """Return a decode step: for each group of heads the scores, then the weighted sums.

    With `split` the planes process adjacent heads in lock-step.
    """
    lanes = p.planes if split else 1
    steps = [heads[first : first + lanes] for first in range(0, len(heads), lanes)]
    parts = []
    for first in range(0, len(steps), GROUP):
        group = steps[first : first + GROUP]
        parts += [scores(p, step) for step in group]
        parts += [weighted_sums(p, step) for step in group]
    return joined(parts)


def scores(p: FlexiblePeArrayParameters, step: list[Head]) -> Beats:
    """Return the dot products of the queries of heads in lock-step with their keys."""
    vector = _lanes(p, [codes(head.query)[np.newaxis] for head in step])
    keys = _lanes(p, [codes(head.keys) for head in step])
    return inner(p, vector, keys, split=len(step) > 1)


def weighted_sums(p: FlexiblePeArrayParameters, step: list[Head]) -> Beats:
    """Return the probabilities of heads in lock-step times their values."""
    scalars = np.stack([codes(head.probabilities) for head in step], axis=1)
    if len(step) < p.planes:
        scalars = np.repeat(scalars, p.planes, axis=1)
    return outer(p, scalars, _lanes(p, [codes(head.values) for head in step]))


def projection(
    p: FlexiblePeArrayParameters, inputs: Codes, weights: Codes, *, split: bool = False
) -> Beats:
    """Return the dot products of a long input with rows of weights, in blocks, slice by slice."""
    size = weights.shape[1]
    slices = -(-size // p.width)
    padding = slices * p.width - size
    inputs = np.pad(inputs, (0, padding)).reshape(slices, 1, p.width)
    weights = np.pad(weights, ((0, 0), (0, padding)))
    parts = []
    for first in range(0, len(weights), p.partial_sums):
        block = weights[first : first + p.partial_sums].reshape(-1, slices, p.width)
        parts += [
            inner(p, inputs[i], block[:, i], split=split, first=i == 0, last=i == slices - 1)
            for i in range(slices)
        ]
    return joined(parts)


def inner(
    p: FlexiblePeArrayParameters,
    vector: Codes,
    weights: Codes,
    *,
    split: bool = False,
    first: bool = True,
    last: bool = True,
) -> Beats:
    """Return dot products of one vector, shape (0 or 1, width), with rows of weights."""
    count = len(weights)
    load = np.zeros(count, np.uint64)
    load[: len(vector)] = 1
    return Beats(
        mode=np.full(count, ArrayMode.INNER.value, np.uint64),
        split=np.full(count, split, np.uint64),
        load_vector=load,
        first=np.full(count, first, np.uint64),
        last=np.full(count, last, np.uint64),
        scalars=np.zeros((count, p.planes), np.uint64),
        weights=weights,
        vectors=vector,
    )


def outer(p: FlexiblePeArrayParameters, scalars: Codes, weights: Codes) -> Beats:
    """Return one row of sums of scalars times rows of weights."""
    count = len(weights)
    zeros = np.zeros(count, np.uint64)
    return Beats(
        mode=np.full(count, ArrayMode.OUTER.value, np.uint64),
        split=zeros,
        load_vector=zeros,
        first=(np.arange(count) == 0).astype(np.uint64),
        last=(np.arange(count) == count - 1).astype(np.uint64),
        scalars=scalars,
        weights=weights,
        vectors=np.zeros((0, p.width), np.uint64),
    )


def random_beats(rng: np.random.Generator, p: FlexiblePeArrayParameters, pieces: int) -> Beats:
    """Return random rows, short and long dot products in random order, with any values."""
    parts = [inner(p, random_codes(rng, (1, p.width)), random_codes(rng, (1, p.width)))]
    for _ in range(pieces):
        split = bool(rng.integers(2))
        planes = (p.planes, p.plane_width) if split else (1, 1)
        match rng.integers(4):
            case 0:
                count = int(rng.integers(1, 5))
                vector = random_codes(rng, (int(rng.integers(2)), p.width))
                weights = random_codes(rng, (count, p.width))
                if len(vector) and rng.integers(2):
                    weights = hard_rows(rng, vector[0], count, planes)
                parts.append(inner(p, vector, weights, split=split))
            case 1:
                rows = int(rng.integers(1, 1 + min(6, p.partial_sums)))
                size = p.width * int(rng.integers(1, 5))
                vector = random_codes(rng, (size,))
                weights = random_codes(rng, (rows, size))
                if rng.integers(4):
                    # Errors between two slices show best if few other terms are added.
                    weights = hard_rows(rng, vector, rows, planes)
                else:
                    size -= int(rng.integers(p.width))
                parts.append(projection(p, vector[:size], weights[:, :size], split=split))
            case _:
                count = int(rng.integers(1, 12))
                scalars = random_codes(rng, (count, p.planes))
                weights = random_codes(rng, (count, p.width))
                if rng.integers(2):
                    # Sums that one plane's PEs accumulate from row to row.
                    weights = hard_rows(rng, scalars[:, rng.integers(p.planes)], p.width).T
                parts.append(outer(p, scalars, weights))
    return joined(parts)


def hard_beats(rng: np.random.Generator, p: FlexiblePeArrayParameters, pieces: int) -> Beats:
    """Return dot products and rows whose terms nearly cancel, and some with large partial sums."""
    parts = []
    for piece in range(pieces):
        split = bool(piece % 2)
        vector = random_codes(rng, (2 * p.width,))
        planes = (p.planes, p.plane_width) if split else (1, 1)
        weights = hard_rows(rng, vector, p.partial_sums, planes)
        parts.append(projection(p, vector, weights, split=split))
        scalars = random_codes(rng, (2 * p.add_stages, p.planes))
        weights = hard_rows(rng, scalars[:, piece % p.planes], p.width).T
        parts.append(outer(p, scalars, weights))
        if piece % 9 == 0:
            parts += large_sums(rng, p, split=split)
    return joined(parts)


def large_sums(
    rng: np.random.Generator, p: FlexiblePeArrayParameters, *, split: bool
) -> list[Beats]:
    """Return a row and dot products whose partial sums exceed any product, then become small."""
    rows = large_and_back(rng, (p.add_stages, p.width)).reshape(-1, p.width)
    scalars = np.repeat(large(rng, (1, p.planes)), len(rows), axis=0)
    slices = large_and_back(rng, (p.partial_sums, p.width)).swapaxes(0, 1)
    slices = slices.reshape(p.partial_sums, -1)
    vector = np.repeat(large(rng, (1,)), slices.shape[1])
    return [outer(p, scalars, rows), projection(p, vector, slices, split=split)]


def large(rng: np.random.Generator, shape: tuple[int, ...]) -> Codes:
    """Return numbers of FP16's last binade, half of the time of its first code only."""
    return rng.integers(0x7800, rng.choice([0x7801, 0x7C00]), shape).astype(np.uint64)


def large_and_back(rng: np.random.Generator, shape: tuple[int, ...]) -> Codes:
    """Return ``[9, *shape]``: four large numbers, their negatives, and any number."""
    grown = np.repeat(large(rng, shape)[np.newaxis], 4, axis=0)
    return np.concatenate([grown, grown | np.uint64(0x8000), random_codes(rng, (1, *shape))])


def hard_rows(
    rng: np.random.Generator, vector: Codes, rows: int, planes: tuple[int, int] = (1, 1)
) -> Codes:
    """Return rows that are difficult for a vector, as in `hard_partners`.

    The partial sums of each of the `planes` (number, and PEs of each) are difficult, too.
    """
    shares = vector.astype(np.uint16).reshape(-1, *planes).swapaxes(0, 1).reshape(planes[0], -1)
    vectors = np.broadcast_to(shares, (rows, *shares.shape)).reshape(-1, shares.shape[1])
    partners = hard_partners(rng, vectors).reshape(rows, planes[0], -1, planes[1])
    return partners.swapaxes(1, 2).reshape(rows, -1).astype(np.uint64)


def random_codes(rng: np.random.Generator, shape: tuple[int, ...]) -> Codes:
    """Return FP16 codes: ordinary numbers, subnormals, any finite codes, few special values."""
    ordinary = codes(rng.normal(size=shape) * 2.0 ** rng.integers(-6, 6, size=shape))
    tiny = rng.integers(0, 0x400, size=shape) | (rng.integers(0, 2, size=shape) << 15)
    finite = rng.integers(0, BINARY16.infinity, size=shape) | (rng.integers(0, 2, size=shape) << 15)
    kind = rng.choice(4, p=(0.6, 0.2, 0.19, 0.01), size=shape)
    special = rng.choice(SPECIALS, size=shape)
    return np.choose(kind, [ordinary, tiny.astype(np.uint64), finite.astype(np.uint64), special])


def packed_beats(p: FlexiblePeArrayParameters, beats: Beats) -> list[int]:
    """Return the payloads of the stream `operands`."""
    flags = (beats.mode, beats.split, beats.load_vector, beats.first, beats.last)
    header = np.stack(flags, axis=-1).astype(np.uint8)
    return to_integers(
        np.concatenate([header, _bits(beats.scalars), _bits(beats.weights)], axis=-1)
    )


def packed_codes(rows: Codes) -> list[int]:
    """Return rows of FP16 codes as payloads."""
    return to_integers(_bits(rows))


def unpacked_codes(payloads: Iterable[int], width: int) -> Codes:
    """Return payloads as rows of `width` FP16 codes."""
    data = b"".join(payload.to_bytes(2 * width, "little") for payload in payloads)
    return np.frombuffer(data, "<u2").reshape(-1, width).astype(np.uint64)


def _bits(rows: Codes) -> NDArray[np.uint8]:
    data = np.ascontiguousarray(rows.astype("<u2")).view(np.uint8)
    return np.unpackbits(data, axis=-1, bitorder="little")


def _lanes(p: FlexiblePeArrayParameters, heads: list[Codes]) -> Codes:
    """Return concatenated heads, padded with zeros."""
    together = np.concatenate(heads, axis=1)
    return np.pad(together, ((0, 0), (0, p.width - together.shape[1])))
