"""Parameters of the array with its evictor, and its scores compared with a float64 reference."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.arith.int_symmetric import quantise
from golden.kelle.array.evicting_array import SCORE_FRACTION, quantised_scores
from golden.kelle.array.systolic_array import combined
from golden.llm import open_trace
from hdl.kelle.array.evicting_array import EvictingArrayParameters
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from testbenches.kelle.array.tile_passes import passes_of, projection

EVICTOR = SystolicEvictorParameters()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 16}, "the evictor's rows must be the array's 16, not 32"),
        ({"rows": 24}, "rows must be a power of two between 2 and 64, not 24"),
        ({"bands": 5}, "bands must be a power of two between 1 and 64, not 5"),
        ({"vectors": 1}, "vectors must be an integer from 2 to 1024, not 1"),
        ({"stages": 0}, "stages must be an integer from 1 to 8, not 0"),
        (
            {"evictor": replace(EVICTOR, input_width=12)},
            "the evictor's input_width must be 16, not 12",
        ),
        (
            {"evictor": replace(EVICTOR, source=ScoreSource.PROB)},
            "the evictor's source must be raw scores, not .*PROB",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvictingArrayParameters(**change)


def test_scores_are_within_the_bound() -> None:
    """Operands err by at most half a step, the scale by 2**-16, the result by half a step."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    head = trace.attention_trace(14, 0)
    q, k = head.q.astype(np.float64), head.k.astype(np.float64)
    _, _, _, _, scores = quantised_scores(head.q[np.newaxis], head.k)
    truth = q @ k.T / 8
    query_step, key_step = np.abs(q).max() / 32767, np.abs(k).max() / 32767
    ones = np.ones_like(q)
    bound = np.abs(q) @ ones.T * key_step + (np.abs(k) @ ones.T * query_step).T
    bound = (bound / 2 + 16 * query_step * key_step) / 8
    bound += np.abs(truth) * 2.0**-15 + 0.5 * 2.0**-SCORE_FRACTION
    assert np.abs(truth).max() < 31.9
    assert np.all(np.abs(scores[0] / 2.0**SCORE_FRACTION - truth) <= bound)


def test_projections_are_within_the_bound() -> None:
    """Exact sums of INT8 weights with one scale per output and 16-bit activations, scaled back."""
    trace = open_trace(text="prose", tokens=640, layers=(0, 14, 29))
    p = SystolicArrayParameters()
    linear = trace.linear(14, "q_proj")
    weight, inputs = linear.weight.astype(np.float64), linear.inputs[:64].astype(np.float64)
    operands = projection(trace, 14, "q_proj", p, 64)
    sums = combined(list(passes_of(operands, p, outputs=1)))
    weight_steps = quantise(linear.weight, axis=1)[1][: p.rows, 0].astype(np.float64)
    input_step = float(np.abs(linear.inputs).max()) / 32767
    truth = inputs @ weight.T[:, : p.rows]
    bound = np.abs(inputs).sum(axis=1, keepdims=True) * weight_steps / 2
    bound = bound + np.abs(weight[: p.rows]).sum(axis=1) * input_step / 2
    bound = bound + weight.shape[1] * weight_steps * input_step / 4
    bound = bound * 1.001 + 1e-5 * np.abs(truth)
    assert np.all(np.abs(sums * weight_steps * input_step - truth) <= bound)
