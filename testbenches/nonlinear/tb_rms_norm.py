"""Testbench of RMSNorm: SmolLM2's hidden states, extremes, stalls, resets."""

from typing import Any

import cocotb

from golden.nonlinear.rms_norm import exact_rms_norm, rms_norm
from hdl.nonlinear.rms_norm import RmsNormParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear.norm_bench import NormBench, capture, real_rows
from testbenches.streams import PAUSES, pause_until

LATENCY, READ_LATENCY = 10, 4
"""Cycles from a row's last slice, and from the read of its first slice, to its first result."""


def prepare(p: RmsNormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    capture()


def bench_for(dut: Any, salt: str, *pauses: str) -> NormBench:
    """Attach the unit's streams, with pause patterns of states, weights and results."""
    layout = catalog_parameters().values_layout
    names = ("weights",)
    return NormBench(dut, salt, *pauses, stream=("weights", layout), names=names, model=rms_norm)


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Run hidden states of SmolLM2 at full rate; compare every bit."""
    bench = bench_for(dut, "real_states")
    rows = real_rows(bench.p)
    await bench.run_at_full_rate(rows, latency=LATENCY, read_latency=READ_LATENCY)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run extreme rows, operands and epsilons."""
    await bench_for(dut, "extremes").run_extremes()


@cocotb.test()
async def clamp(dut: Any) -> None:
    """Run rows with results just inside and just outside the range, at both limits."""
    await bench_for(dut, "clamp").run_at_the_clamp(exact_rms_norm)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random rows with every pair of pause patterns; weights pause at random."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, "random", sink)
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def stalled_output_fills_the_buffer(dut: Any) -> None:
    """Stall the output until the buffer is completely full of rows, then accept all."""
    bench = bench_for(dut, "stalled_output", "none", "none", "none")
    rows = bench.p.rows + 2
    bench.slices.sink.pauses = pause_until(rows * bench.p.slices + 4 * LATENCY)
    await bench.run(*bench.random_rows(rows))


@cocotb.test()
@cocotb.parametrize(weights=list(PAUSES))
async def late_weights(dut: Any, weights: str) -> None:
    """Offer weights with every pause pattern, all other streams at full rate."""
    bench = bench_for(dut, f"late_weights {weights}", "none", weights, "none")
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state must survive."""
    await bench_for(dut, "resets", "random", "bursty", "random").run_between_resets()
