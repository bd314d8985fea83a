"""SmolLM2's tensors as the vectors that the quantisers take, and vectors at the formats' edges."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.llm.trace import Trace

LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN = 24
"""Tokens of each layer that a simulation takes."""

Codes = NDArray[np.int64]


def trace() -> Trace:
    """Return the captured tensors."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def cut(rows: NDArray[np.floating], width: int) -> Codes:
    """Return FP16 codes of rows, cut or repeated to a width."""
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
