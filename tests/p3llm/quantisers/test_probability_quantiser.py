"""The probability quantiser's model against the authors' rule, bounds and roundings."""

import numpy as np
import torch

from golden.arith.float_values import codes, values
from golden.arith.fp8_s0e4m4 import decode
from golden.p3llm.quantisers.probability_quantiser import probability_quantiser
from hdl.arith.fp8_s0e4m4 import Round
from hdl.p3llm.quantisers.probability_quantiser import ProbabilityQuantiserParameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace
from tests.p3llm.quantisers import authors

HALF_UP = ProbabilityQuantiserParameters()
ONE = 0x3C00


def test_every_probability_is_as_by_the_authors_algorithm() -> None:
    """Causal probabilities of nine heads of three layers of SmolLM2: 0 differ."""
    compared = 0
    for layer in LAYERS:
        for head in range(trace().heads):
            shares = codes(trace().attention_trace(layer, head).probabilities)
            got = decode(probability_quantiser(shares, HALF_UP))
            theirs = authors.s0e4m4(torch.tensor(shares.view(np.float16)))
            assert np.array_equal(got.view(np.float16), theirs.numpy())
            compared += got.size
    assert compared > 10_000_000


def test_roundings_differ_on_ties_alone() -> None:
    """Of the 15,361 FP16 numbers from 0 to 1, 120 are ties, which both rules round differently."""
    every = np.arange(ONE + 1)
    up, even, cut = (
        probability_quantiser(every, ProbabilityQuantiserParameters(round=rule))
        for rule in (Round.HALF_UP, Round.RNE, Round.TRUNC)
    )
    differ = up != even
    assert differ.sum() == 120 and np.all(every[differ] & 63 == 32)
    assert np.array_equal(cut, every >> 6)
    exact = values(every)
    for got, share in ((up, 0.5), (even, 0.5), (cut, 1.0)):
        step = np.maximum(exact * 2.0**-4, 2.0**-18)
        assert np.all(np.abs(values(decode(got)) - exact) <= share * step)


def test_beyond_the_range_it_saturates() -> None:
    bits = codes([1.96875, 2.0, 60000.0, np.inf, np.nan, -0.5, -0.0, 1.968])
    got = probability_quantiser(bits, HALF_UP)
    assert got.tolist() == [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF]
