"""Testbench of RMSNorm: SmolLM2's hidden states, extremes, stalls, resets."""

from functools import partial
from typing import Any

import cocotb

from golden.nonlinear.rms_norm import exact_rms_norm, rms_norm
from hdl.nonlinear.rms_norm import RmsNormParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear.norm_bench import NormBench, capture, real_rows
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
from testbenches.streams import pause_until

LATENCY, READ_LATENCY = 10, 4
"""Cycles from a row's last slice, and from the read of its first slice, to its first result.

With `divided` three more, and two more.
"""


def prepare(p: RmsNormParameters) -> None:
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
        stream="weights",
        layout=catalog_parameters().values_layout,
        names=("weights",),
        model=rms_norm,
    )


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Run hidden states of SmolLM2 at full rate; compare every bit."""
    bench = bench_for(dut, "real_states")
    rows = real_rows(bench.p)
    latency, read_latency = LATENCY + 3 * bench.p.divided, READ_LATENCY + 2 * bench.p.divided
    await bench.run_at_full_rate(rows, latency=latency, read_latency=read_latency)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run extreme rows, operands and epsilons."""
    await bench_for(dut, "extremes").run_extremes()


@cocotb.test()
async def clamp(dut: Any) -> None:
    """Run rows with results just inside and just outside the range, at both limits."""
    await bench_for(dut, "clamp").run_at_the_clamp(exact_rms_norm)


@cocotb.test()
async def stalled_output_fills_the_buffer(dut: Any) -> None:
    """Stall the output until the buffer is completely full of rows, then accept all."""
    bench = bench_for(dut, "stalled_output")
    rows = bench.p.rows + 2
    bench.sinks["results"].pauses = pause_until(rows * bench.p.slices + 4 * LATENCY)
    await bench.run(bench.random_rows(rows))


stalls = stall_test(partial(bench_for, operands="random"), lambda bench: bench.random_rows(6))
slow_stream = slow_stream_test(bench_for, lambda bench: bench.random_rows(6), streams=["weights"])
resets = reset_test(
    partial(bench_for, operands="random"),
    lambda bench: bench.random_rows(4),
    begun=lambda bench: bench.random_rows(2),
    times=6,
    longest=lambda bench: 3 * bench.p.slices,
)
