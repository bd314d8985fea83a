"""Testbench of RMSNorm: SmolLM2's hidden states, extremes, stalls, resets."""

from typing import Any

import cocotb

from golden.nonlinear.rms_norm import exact_rms_norm, rms_norm
from hdl.nonlinear.rms_norm import RmsNormParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear.norm_bench import NormBench, capture, real_rows
from testbenches.streams import PAUSES, pause_until

LATENCY, READ_LATENCY = 10, 4
"""Cycles from a row's last slice to its first result, and from its first slice's reading."""


def prepare(p: RmsNormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    capture()


def bench_for(dut: Any, salt: str, *pauses: str) -> NormBench:
    """Attach the unit's streams; pause patterns of states, weights and results."""
    layout = catalog_parameters().values_layout
    names = ("weights",)
    return NormBench(dut, salt, *pauses, stream=("weights", layout), names=names, model=rms_norm)


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Hidden states of SmolLM2 at full rate, bit for bit."""
    bench = bench_for(dut, "real_states")
    rows = real_rows(bench.p)
    await bench.run_at_full_rate(rows, latency=LATENCY, read_latency=READ_LATENCY)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Rows, operands and epsilon at their ends."""
    await bench_for(dut, "extremes").run_extremes()


@cocotb.test()
async def clamp(dut: Any) -> None:
    """Results within some steps of either end of the range, inside and outside."""
    await bench_for(dut, "clamp").run_at_the_clamp(exact_rms_norm)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random rows under every pair of pause patterns; the weights pause at random."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, "random", sink)
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def nobody_takes(dut: Any) -> None:
    """Fill the buffer with rows that wait, to the last place; then take them all."""
    bench = bench_for(dut, "nobody_takes", "none", "none", "none")
    rows = bench.p.rows + 2
    bench.slices.sink.pauses = pause_until(rows * bench.p.slices + 4 * LATENCY)
    await bench.run(*bench.random_rows(rows))


@cocotb.test()
@cocotb.parametrize(weights=list(PAUSES))
async def late_weights(dut: Any, weights: str) -> None:
    """Offer weights under every pause pattern, everything else at full rate."""
    bench = bench_for(dut, f"late_weights {weights}", "none", weights, "none")
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    await bench_for(dut, "resets", "random", "bursty", "random").run_between_resets()
