"""Testbench of layer norm: SmolLM2's hidden states, extremes, stalls, resets."""

from functools import partial
from typing import Any

import cocotb
import numpy as np

from golden.nonlinear.layer_norm import exact_layer_norm, layer_norm
from hdl.nonlinear.layer_norm import LayerNormParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear.norm_bench import NormBench, capture, real_rows
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test

LATENCY, READ_LATENCY = 13, 5
"""Cycles from a row's last slice, and from the read of its first slice, to its first result."""


def prepare(p: LayerNormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    capture()


def bench_for(
    dut: Any, salt: str, source: str = "none", sink: str = "none", operands: str = "none"
) -> NormBench:
    """Attach the unit's streams and its model."""
    return NormBench(
        dut,
        salt,
        source,
        sink,
        operands=operands,
        stream="affine",
        layout=catalog_parameters().affine_layout,
        names=("weights", "biases"),
        model=layer_norm,
    )


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Run hidden states of SmolLM2 at full rate; compare every bit."""
    bench = bench_for(dut, "real_states")
    states, epsilon, weights = real_rows(bench.p)
    # SmolLM2's norms have no biases: use scaled hidden states.
    biases = np.clip(np.roll(states, 1, axis=1) >> 6, -(1 << 15), (1 << 15) - 1)
    rows = states, epsilon, weights, biases
    extra = int(bench.p.registered)
    await bench.run_at_full_rate(rows, latency=LATENCY + extra, read_latency=READ_LATENCY + extra)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run extreme rows, operands and epsilons."""
    await bench_for(dut, "extremes").run_extremes()


@cocotb.test()
async def clamp(dut: Any) -> None:
    """Run rows with results just inside and just outside the range, at both limits."""
    await bench_for(dut, "clamp").run_at_the_clamp(exact_layer_norm)


stalls = stall_test(partial(bench_for, operands="random"), lambda bench: bench.random_rows(6))
slow_stream = slow_stream_test(bench_for, lambda bench: bench.random_rows(6), streams=["affine"])
resets = reset_test(
    partial(bench_for, operands="random"),
    lambda bench: bench.random_rows(4),
    begun=lambda bench: bench.random_rows(2),
    times=6,
    longest=lambda bench: 3 * bench.p.slices,
)
