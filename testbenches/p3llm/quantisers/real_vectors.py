"""SmolLM2's tensors as operands of the quantisers, and vectors at the limits of the formats."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import LARGEST, codes, values
from golden.llm import open_trace
from golden.llm.trace import Trace

LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN = 24
"""Tokens per layer in a simulation."""

Codes = NDArray[np.int64]


def trace() -> Trace:
    """Return the captured tensors."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def cut(rows: NDArray[np.floating], width: int) -> Codes:
    """Return FP16 codes of rows, truncated or repeated to a width."""
    columns = np.arange(width) % rows.shape[-1]
    return codes(rows[..., columns]).astype(np.int64)


def edges(width: int) -> Codes:
    """Return vectors of zeros, of equal elements, of one sign, tiny, huge, and with specials."""
    rng = np.random.default_rng(width)
    rows = [np.full(width, value) for value in (0x0000, 0x8000, 0x3C00, 0xBC00, 0x0001, 0x7BFF)]
    rows += [np.full(width, value) for value in (0x7C00, 0xFC00, 0x7E01, 0xFE01)]
    # One-signed groups, near and far from zero.
    rows += [rng.integers(low, high, width) for low, high in ((0x3C00, 0x3C20), (0x7000, 0x7C00))]
    rows += [0x8000 | row for row in rows[-2:]]
    # Around the smallest scale: 1e-6 times 15 and times 448.
    rows += [rng.integers(0, top, width) for top in (4, 0x0100, 0x0F57, 0x0F59, 0x1400)]
    alone = np.zeros(width, np.int64)
    alone[-1] = 0xFBFF
    with_specials = rng.integers(0, 1 << 16, (6, width))
    return np.concatenate([np.stack([*rows, alone]), with_specials])


def random_vectors(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return finite vectors of random magnitudes, some with few bits, so that quotients tie."""
    rows = rng.integers(0, 0x7C00, (count, width)) - (rng.integers(0, 24, (count, 1)) << 10)
    rows = np.maximum(rows, rng.integers(0, 4, rows.shape))
    few = rng.random((count, 1)) < 0.5
    rows = np.where(few, rows & 0x7F80, rows)
    return rows | rng.integers(0, 2, rows.shape) << 15


def alone(width: int, lanes: int) -> Codes:
    """Return vectors with a single infinity or NaN among small numbers, in the outer lanes."""
    magnitudes = [LARGEST + 1, *(LARGEST + 1 | 1 << bit for bit in range(10))]
    marks = np.array([sign | code for sign in (0, 0x8000) for code in magnitudes])
    rows = np.random.default_rng(width).integers(0, 0x3C00, (2, len(marks), width))
    rows[0, :, 0] = rows[1, :, lanes - 1] = marks
    return rows.reshape(-1, width)


def small(rng: np.random.Generator, width: int, lanes: int, octaves: tuple[int, int]) -> Codes:
    """Return every subnormal magnitude in every lane, with a maximum some binades larger."""
    count = width // lanes - 1
    magnitudes = np.tile(np.arange(0x400 // count * count + count).reshape(-1, count), (16, 1))
    ends = magnitudes[:, -1:] * 2.0 ** (rng.uniform(*octaves, (len(magnitudes), 1)) - 24)
    first = codes(ends).astype(np.int64) | rng.integers(0, 2, ends.shape) << 15
    return np.repeat(np.concatenate([first, magnitudes], axis=1), lanes, axis=1)


def between_ends(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors with maxima and minima of any magnitude, a third of them powers of two."""
    ends = rng.integers(0, LARGEST + 1, (count, 2))
    powers = [1 << bit for bit in range(10)] + [code << 10 for code in range(1, 31)]
    ends[::3] = rng.choice(powers, ends[::3].shape)
    ends = np.sort(ends * rng.choice((-1, 1), ends.shape), axis=1)
    ordered = rng.integers(ends[:, :1], ends[:, 1:] + 1, (count, width))
    ordered[:, :2] = ends
    return np.where(ordered < 0, 0x8000 | -ordered, ordered)


def exact_scales(rng: np.random.Generator, count: int, width: int, divisor: int) -> Codes:
    """Return vectors whose largest is a multiple of a divisor, all others nearer to zero.

    Their scales have few bits, and tie where FP16's subnormal numbers have fewer.
    """
    largest = divisor * rng.integers(1, 2048 // divisor, count) * 2.0 ** rng.integers(-24, 4, count)
    top = codes(largest).astype(np.int64)[:, np.newaxis]
    rows = rng.integers(0, top + 1, (count, width))
    rows[:, :1] = top
    return rows


def int4_near_ties(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors whose extent is 2, 6 or 10 times a number, and of odd multiples of it.

    Quotients are midpoints of two INT4 codes: the rounding of the scale decides.
    """
    unit = rng.integers(0x400, 0x800, (count, 1)) * 2.0 ** rng.integers(-23, -6, (count, 1))
    # Every other number is so short that its multiples are FP16 numbers.
    unit[::2] = rng.integers(0x80, 0xCC, unit[::2].shape) * 2.0 ** rng.integers(-20, -2)
    times = rng.choice((2, 6, 10), (count, 1))
    rows = codes(unit * (2 * rng.integers(0, times // 2, (count, width)) + 1)).astype(np.int64)
    extent = (unit * times)[:, 0]
    top = codes(extent).astype(np.int64)
    top += top.astype(np.uint16).view(np.float16).astype(np.float64) < extent
    # The maximum is an FP16 number, and the minimum is the excess.
    rows[:, 0] = top
    rows[:, -1] = codes(top.astype(np.uint16).view(np.float16).astype(np.float64) - extent)
    return rows


def zero_point_near_ties(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors of odd multiples of a number, their extent 2, 6 or 10 times as large as it.

    The unrounded zero point is also a midpoint of two integers, up to the scale's rounding.
    """
    times = rng.choice((2, 6, 10), (count, 1))
    lower = 2 * rng.integers(0, times // 2) + 1
    upper = times - lower
    unit = rng.integers(1, 2048 // np.maximum(lower, upper) + 1)
    unit = unit * 2.0 ** rng.integers(-20, 5, (count, 1))
    multiples = 2 * rng.integers(-lower // 2, (upper + 1) // 2, (count, width)) + 1
    multiples[:, :1], multiples[:, -1:] = upper, -lower
    return codes(unit * multiples).astype(np.int64)


def near_halves(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors whose unrounded zero points and codes are next to midpoints.

    They are as close as FP16 allows, on either side: the remainder of the division is small, and a
    wrong carry in it changes the result.
    """
    lower = rng.integers(0x1000, 0x6000, (count, 1))
    half = rng.integers(0, 15, (count, 1)) + 0.5
    upper = codes(values(lower) * (15 / half - 1)).astype(np.int64)
    upper += rng.integers(-1, 2, upper.shape)
    quotients = rng.integers(np.ceil(-half), np.floor(15 - half) + 1, (count, width)) + 0.5
    inner = quotients * (values(upper) + values(lower)) / 15
    near = codes(np.abs(inner)).astype(np.int64) + rng.integers(-1, 2, inner.shape)
    rows = np.where(inner < 0, 0x8000 | np.minimum(near, lower), np.minimum(near, upper))
    rows[:, :1], rows[:, -1:] = upper, 0x8000 | lower
    return rows


def last_place_scales(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors whose scale is next to a midpoint of two FP16 numbers, in float32.

    Maximum and minimum are so far apart that their difference has all digits of float32.
    """
    # A midpoint of two FP16 numbers has twelve digits; the extent, 15 times it, at most sixteen.
    halves = 2 * rng.integers(1 << 10, 1 << 11, 64 * count) + 1
    places = 24 - np.ceil(np.log2(15 * halves + 1)).astype(int)
    extent = (15 * halves << places) + rng.choice((-1, 1), len(halves))
    lower = extent % (1 << 13)
    possible = np.flatnonzero(lower < 1 << 11)[:count]
    ends = np.stack([extent - lower, lower], axis=-1)[possible] * 2.0**-8
    ends *= 2.0 ** -(places[possible] + rng.integers(-8, 8, len(possible)))[:, np.newaxis]
    ends = codes(np.where(rng.random((len(possible), 1)) < 0.5, ends, ends[:, ::-1])).astype(int)
    rows = rng.integers(0, ends[:, :1] + 1, (len(possible), width))
    rows[:, 0], rows[:, -1] = ends[:, 0], 0x8000 | ends[:, 1]
    return rows


def e4m3_near_ties(rng: np.random.Generator, count: int, width: int) -> Codes:
    """Return vectors of the largest, or three quarters of it, by powers of two.

    448 and 336, by powers of two, have quotients that are midpoints of two E4M3 codes: the rounding
    of scale and quotient decides.
    """
    largest = (0x400 | rng.integers(0, 256, (count, 1)) << 2) * 2.0 ** rng.integers(
        -4, 6, (count, 1)
    )
    parts = rng.choice((1, 0.75), (count, width)) * 2.0 ** -rng.integers(0, 19, (count, width))
    parts[:, 0] = 1
    return codes(largest * parts).astype(np.int64)
