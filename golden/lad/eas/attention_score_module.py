"""LAD's attention scores and key centres: float64 reference and bit-exact model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_compare import float_extreme
from golden.arith.float_divide import divide
from golden.arith.float_multiply import float_multiply
from golden.arith.float_sqrt import sqrt
from golden.arith.float_values import ONE, codes, values
from golden.lad.locality_aware_attention import LARGE_MODES
from golden.lad.vpu.vector_processing_unit import dot_product
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

THRESHOLD = int(codes(0.98))
"""Threshold of |cos| above which two keys count as collinear."""
LEAST_NORM = int(codes(2.0**-14))
"""Replaces a norm of 0."""


def large_modes(modes: Any, *, intervals: int, recent: int) -> Flags:
    """Return M of a step: the positions with large modes, position 0, and the `recent` latest."""
    modes = np.asarray(modes)
    precise = modes >= intervals - LARGE_MODES
    precise[0] = True
    precise[max(len(modes) - recent, 0) :] = True
    return precise


@dataclass(frozen=True)
class Scored:
    """Scores [n] of a step and their maximum (max_s), as FP16 codes."""

    scores: Codes
    maximum: int


def attention_scores(
    query: Any, keys: Any, centres: Any, ratios: Any, precise: Flags, fetched: Any
) -> Scored:
    """Return the results of EAS.1 to EAS.3 for n positions, bit-exact.

    Parameters
    ----------
    query, keys : array [d], [f, d]
        FP16 codes; the keys of the positions `fetched`.
    centres, ratios : array [n]
        cid and dnorm.
    precise : array of bool [n]
        M, whose scores do not use a centre.
    fetched : array [f]
        Positions with a key: at least the centres, and M.
    """
    fetched, centres = np.asarray(fetched), np.asarray(centres)
    table = np.zeros(len(centres), np.uint16)
    table[fetched] = dot_product(np.asarray(query), np.asarray(keys))
    rows = np.arange(len(centres))
    shown = table[np.where(precise, rows, np.minimum(centres, len(centres) - 1))]
    factors = np.where(precise, ONE, ratios).astype(np.uint16)
    scores = float_multiply(BINARY16, shown, factors).astype(np.uint16)
    return Scored(scores, largest(scores))


def largest(scores: Codes) -> int:
    """Return the code of the largest score, which does not depend on the order of comparisons.

    The result is NaN if any score is; +0 is above -0.
    """
    left = scores
    while len(left) > 1:
        half = (len(left) + 1) // 2
        left = float_extreme(BINARY16, left[:half], left[-half:], maximum=True).astype(np.uint16)
    # A single score that is a NaN also becomes the NaN of a comparison.
    return int(float_extreme(BINARY16, left, left, maximum=True)[0])


@dataclass(frozen=True)
class Centre:
    """Result of Algorithm 1 for a new key: cid, and FP16 codes of its norm and of dnorm."""

    centre: int
    norm: int
    ratio: int


def key_centre(key: Any, keys: Any, positions: Any, norms: Any) -> Centre:
    """Return the result of EAS.4 and EAS.5, bit-exact; `centre` is -1 if the key is a new centre.

    Parameters
    ----------
    key : array [d]
        FP16 codes of the new key.
    keys, positions, norms : array [c, d], [c], [c]
        The centres in the order of their transfer; ties resolve to the first one.
    """
    key, norms = np.asarray(key), np.asarray(norms).astype(np.uint16)
    square = dot_product(key, key[np.newaxis])
    norm = sqrt(square)[0]
    norm = np.uint16(LEAST_NORM) if not norm & 0x7FFF else norm
    new = Centre(-1, int(norm), ONE)
    if not len(norms):
        return new
    sizes = float_multiply(BINARY16, norms, np.full_like(norms, norm)).astype(np.uint16)
    cosines = divide(dot_product(key, np.asarray(keys)), sizes)
    # A NaN is never selected.
    lengths = np.nan_to_num(np.abs(values(cosines)), nan=-1.0, posinf=np.inf)
    best = int(np.argmax(lengths))
    if not lengths[best] > values(THRESHOLD):
        return new
    ratio = int(divide(np.array([norm]), norms[best : best + 1])[0])
    sign = int(cosines[best]) & 0x8000
    return Centre(int(np.asarray(positions)[best]), int(norm), ratio ^ sign)
