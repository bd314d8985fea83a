"""Groups of logits to the argmax: interleaved samples, rows that are no tokens, stalls, resets."""

from dataclasses import replace

import numpy as np
import pytest

from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY16
from hdl.lad.catalog import SMOLLM2, TINY
from hdl.lad.control.logit_argmax import LogitArgmax
from hdl.lad.parameters import LadParameters
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams


def logits(rng: np.random.Generator, p: LadParameters) -> np.ndarray:
    """Return FP16 codes [batch, vocabulary]: few values, any codes, or NaNs only."""
    shape = p.batch, p.vocabulary_size
    few = rng.choice([0, 0x8000, 0x3C00, 0xBC00, 0x7E00, 0xFC00], shape)
    return [few, rng.integers(0, 1 << 16, shape), np.full(shape, 0x7C01)][rng.integers(3)]


@pytest.mark.parametrize(("batch", "vocabulary"), [(2, 45), (1, 49), (2, 1)])
def test_predictions_are_those_of_each_sample(batch: int, vocabulary: int) -> None:
    p = replace(TINY, batch=batch, vocabulary_size=vocabulary)
    rng = np.random.default_rng(vocabulary)
    units, groups = p.tile.linear.units, p.pieces * p.piece_row_groups
    tokens = [logits(rng, p) for _ in range(6)]
    sums, expected = [], []
    for own in tokens:
        # Rows that are no tokens have the largest possible sum.
        rows = np.full((batch, groups * units), 0x7C00)
        rows[:, :vocabulary] = own
        sums.append(rows.reshape(batch, groups, units).swapaxes(0, 1).reshape(-1, units))
        expected += [argmax(BINARY16, one) for one in own]
    found = dict(zip(("token", "sum"), np.array(expected).T, strict=True))
    check_streams(
        LogitArgmax(parameters=p),
        {"sums": to_integers(pack(p.logits_layout, np.concatenate(sums)))},
        {"predictions": to_integers(pack(p.prediction_layout, found))},
        seeds=range(4),
    )


def test_smollm2_has_pieces_with_rows_that_are_no_tokens() -> None:
    p: LadParameters = replace(SMOLLM2, vocabulary_size=49152)
    assert (p.pieces, p.piece_row_groups) == (16, 439)
