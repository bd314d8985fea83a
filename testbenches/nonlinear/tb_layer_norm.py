"""Testbench of layer norm: SmolLM2's hidden states, extremes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.nonlinear.layer_norm import exact_layer_norm, layer_norm
from hdl.nonlinear.layer_norm import LayerNormParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear.norm_bench import NormBench, capture, real_rows
from testbenches.streams import PAUSES

LATENCY, READ_LATENCY = 13, 5
"""Cycles from a row's last slice, and from the read of its first slice, to its first result."""


def prepare(p: LayerNormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    capture()


def bench_for(dut: Any, salt: str, *pauses: str) -> NormBench:
    """Attach the unit's streams, with pause patterns of states, affine and results."""
    layout = catalog_parameters().affine_layout
    names = ("weights", "biases")
    return NormBench(dut, salt, *pauses, stream=("affine", layout), names=names, model=layer_norm)


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Run hidden states of SmolLM2 at full rate; compare every bit."""
    bench = bench_for(dut, "real_states")
    states, epsilon, weights = real_rows(bench.p)
    # SmolLM2's norms have no biases: use scaled hidden states.
    biases = np.clip(np.roll(states, 1, axis=1) >> 6, -(1 << 15), (1 << 15) - 1)
    rows = states, epsilon, weights, biases
    await bench.run_at_full_rate(rows, latency=LATENCY, read_latency=READ_LATENCY)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run extreme rows, operands and epsilons."""
    await bench_for(dut, "extremes").run_extremes()


@cocotb.test()
async def clamp(dut: Any) -> None:
    """Run rows with results just inside and just outside the range, at both limits."""
    await bench_for(dut, "clamp").run_at_the_clamp(exact_layer_norm)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random rows with every pair of pause patterns; weights pause at random."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, "random", sink)
    await bench.run(*bench.random_rows(6))


@cocotb.test()
@cocotb.parametrize(affine=list(PAUSES))
async def late_affine(dut: Any, affine: str) -> None:
    """Offer weights with every pause pattern, all other streams at full rate."""
    bench = bench_for(dut, f"late_affine {affine}", "none", affine, "none")
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state must survive."""
    await bench_for(dut, "resets", "random", "bursty", "random").run_between_resets()
