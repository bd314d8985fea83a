"""Rotary embedding: float64 reference, and bit-exact model of the fixed-point unit."""

from functools import cache
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from golden.arith.table_interpolation import interpolate
from hdl.nonlinear.rotary_embedding import (
    CIRCLE_FRACTION,
    GUARD_BITS,
    PHASE_BITS,
    PIECES,
    PLACE_BITS,
    RotaryEmbeddingParameters,
)

Integers = NDArray[np.int64]


def paired(vectors: NDArray[Any]) -> NDArray[Any]:
    """Reorder channels i and i + size / 2 of the last axis to adjacent channels 2i and 2i + 1."""
    halves = vectors.reshape(*vectors.shape[:-1], 2, -1)
    return np.moveaxis(halves, -2, -1).reshape(vectors.shape)


def exact_rotation(
    vectors: Integers, positions: Integers, p: RotaryEmbeddingParameters
) -> NDArray[np.float64]:
    """Return paired vectors [tokens, head_size], rotated in float64."""
    pair = np.arange(p.head_size // 2)
    angles = positions[:, np.newaxis] * float(p.base) ** (-2.0 * pair / p.head_size)
    pairs = vectors[:, 0::2] + 1j * vectors[:, 1::2]
    rotated = pairs * np.exp(1j * angles)
    return np.stack([rotated.real, rotated.imag], axis=-1).reshape(vectors.shape)


def error_bound(vectors: Integers) -> NDArray[np.float64]:
    """Return the error bound of the unit for results that do not saturate, in steps."""
    magnitudes = np.abs(vectors[:, 0::2]) + np.abs(vectors[:, 1::2])
    return np.repeat(0.5 + 5e-5 * magnitudes, 2, axis=1)


@cache
def circle_tables() -> tuple[Integers, Integers]:
    """Return cosine and sine at the ends of equal segments of a quarter turn."""
    angles = np.pi / 2 * np.arange(PIECES + 1) / PIECES
    scale = 1 << CIRCLE_FRACTION + GUARD_BITS
    cosine, sine = (
        np.rint(scale * values).astype(np.int64) for values in (np.cos(angles), np.sin(angles))
    )
    return cosine, sine


@cache
def turns(p: RotaryEmbeddingParameters) -> Integers:
    """Return ``base**(-2 * i / head_size) / (2 * pi)`` for every pair i, in units of 2**-turn_bits.

    Up to 38 bits are significant, so that float64's own error could reach a tie.
    """
    with mpmath.workprec(160):
        ratio = mpmath.root(mpmath.mpf(p.base), p.head_size) ** -2
        unit = mpmath.ldexp(1 / (2 * mpmath.pi), p.turn_bits)
        pairs = range(p.head_size // 2)
        return np.array([int(mpmath.nint(unit * ratio**pair)) for pair in pairs])


def circle(places: Integers) -> tuple[Integers, Integers]:
    """Return cosine and sine of angles in a quarter turn, with 15 fraction bits."""
    offset_bits = PLACE_BITS - (PIECES.bit_length() - 1)
    cosine, sine = (
        interpolate(places, table, offset_bits=offset_bits, guard_bits=GUARD_BITS)
        for table in circle_tables()
    )
    return cosine, sine


def rotate(
    vectors: Integers, positions: Integers, p: RotaryEmbeddingParameters, *, width: int = 16
) -> Integers:
    """Rotate paired vectors.

    Parameters
    ----------
    vectors : numpy.ndarray
        Raw elements [tokens, head_size], with the channels of a pair adjacent.
    positions : numpy.ndarray
        Position of each token.
    p : RotaryEmbeddingParameters
        Parameters of the unit.
    width : int
        Bits of an element; results beyond saturate.
    """
    product = positions[:, np.newaxis] * turns(p)
    phase = (product + (1 << p.position_bits - 1) >> p.position_bits) % (1 << PHASE_BITS)
    quarter, place = phase >> PLACE_BITS, phase % (1 << PLACE_BITS)
    cosine, sine = circle(place)
    x, y = vectors[:, 0::2].astype(np.int64), vectors[:, 1::2].astype(np.int64)
    for rotated in (1, 2, 3):
        x, y = np.where(quarter >= rotated, -y, x), np.where(quarter >= rotated, x, y)
    half = 1 << CIRCLE_FRACTION - 1
    results = np.stack([x * cosine - y * sine, x * sine + y * cosine], axis=-1)
    highest = (1 << width - 1) - 1
    rotated = np.clip(results + half >> CIRCLE_FRACTION, -highest - 1, highest)
    return rotated.reshape(vectors.shape)
