"""Rows of unrounded logits to the argmax: ties, NaNs, blocks of tokens, and a padded row."""

from typing import Any

import numpy as np
import pytest

from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY32
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.control.logit_rows import LogitRows
from hdl.veda.parameters import VedaParameters
from testbenches.stream_trial import run_streams

BLOCK = 3


def dimensions(vocabulary: int) -> VedaParameters:
    return VedaParameters(
        array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4, sum_format=BINARY32),
        head_size=8,
        heads=2,
        kv_heads=2,
        slots=16,
        hidden_size=4,
        intermediate_size=16,
        vocabulary_size=vocabulary,
        block=BLOCK,
    )


def random_logits(rng: np.random.Generator, vocabulary: int, kind: str) -> Any:
    """Return FP32 codes of a token's logits: close numbers, ties, NaNs, or any codes."""
    if kind == "any":
        return rng.integers(0, 1 << 32, vocabulary, dtype=np.uint64)
    if kind == "nan":
        return np.full(vocabulary, 0x7FC00000, np.uint64)
    if kind == "infinite":
        # -infinity is a number.
        return np.resize(np.array([0x7FC00000, 0xFF800000], np.uint64), vocabulary)
    # Equal in FP16, and many of them equal in FP32 too.
    numbers = 1 + rng.integers(-4, 5, vocabulary) * 2.0**-23
    signs = -1 if kind == "negative" else 1
    return (signs * numbers).astype(np.float32).view(np.uint32).astype(np.uint64)


@pytest.mark.parametrize("pauses", ["none", "random"])
@pytest.mark.parametrize("vocabulary", [2, 8, 9, 45])
def test_ties_resolve_to_lowest_index(vocabulary: int, pauses: str) -> None:
    rng = np.random.default_rng(vocabulary)
    p = dimensions(vocabulary)
    unit = LogitRows(parameters=p)
    shown: list[Any] = []
    rows: list[int] = []
    wanted: list[int] = []
    for kind in ("near", "negative", "any", "nan", "infinite", "near", "any"):
        count = int(rng.integers(1, BLOCK + 1))
        block = np.array([random_logits(rng, vocabulary, kind) for _ in range(count)])
        for sums in block:
            token, code = argmax(p.array.sum_format, sums)
            wanted.append(token | code << p.prediction_layout["sum"].offset)
        # The padding of the last row is larger than all logits.
        filled = np.full((count, p.vocabulary_rows * p.row_elements), 0x7F7FFFFF, np.uint64)
        filled[:, :vocabulary] = block
        for row in filled.reshape(count, -1, p.row_elements).swapaxes(0, 1):
            for sums in row:
                shown.append(sum(int(code) << 32 * lane for lane, code in enumerate(sums)))
                rows.append(count - 1)
    taken, begun = 0, False

    def show(ctx: Any) -> None:
        """Present a row's sums for one cycle, and other values afterwards."""
        nonlocal taken, begun
        gone = ctx.get(unit.rows.valid) and ctx.get(unit.rows.ready)
        fresh = gone or not ctx.get(unit.rows.valid) or not begun
        if not begun:
            # The arrays output a row one cycle after its sums.
            ctx.set(unit.rows.valid, 0)
        begun = True
        taken += gone
        ctx.set(unit.row_ends, fresh)
        ctx.set(unit.row_sums.as_value(), shown[taken] if fresh and taken < len(shown) else 0)

    got = run_streams(
        unit,
        {"rows": rows},
        {"predictions": len(wanted)},
        seed=1,
        pauses=pauses,
        cycle=show,
    )
    assert got["predictions"] == wanted
