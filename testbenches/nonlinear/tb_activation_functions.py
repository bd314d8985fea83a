"""Testbench of SiLU and GeLU: every input, SmolLM2's gates, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.fixed_point import quantise
from golden.llm import open_trace
from golden.nonlinear.activation_functions import activation, exact_activation
from hdl.nonlinear.activation_functions import VALUE, Function
from testbenches.bench import catalog_parameters, root_mean_square
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN_TOKENS = 24


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_gates() -> NDArray[np.int64]:
    """Return gate projections of SmolLM2 over some tokens, in Q6.10."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    gates = []
    for layer in LAYERS:
        linear = trace.linear(layer, "gate_proj")
        gates.append(linear.inputs[-SHOWN_TOKENS:] @ linear.weight.T)
    return quantise(np.stack(gates), VALUE).reshape(-1)


def slices_of(values: NDArray[np.int64], functions: Any, last: int) -> Fields:
    """Cut values into slices; `last` marks every `last`-th slice."""
    values = values.reshape(-1, catalog_parameters().lanes)
    marks = (np.arange(len(values)) % last == last - 1).astype(np.int64)
    functions = np.broadcast_to(functions, len(values))
    return {"values": values, "function": functions, "last": marks}


async def run_slices(bench: StreamBench, slices: Fields) -> int:
    """Run slices and compare every value; return the cycles."""
    p = catalog_parameters()
    cycles = await bench.run(slices)
    values = activation(slices["values"], slices["function"][:, np.newaxis], p)
    bench.check({"values": values, "last": slices["last"]})
    return cycles


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> StreamBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    return StreamBench(
        dut,
        salt,
        source=("inputs", p.slice_layout),
        sink=("outputs", p.result_layout),
        pauses=(source, sink),
    )


def random_slices(bench: StreamBench, count: int) -> Fields:
    """Return slices of random magnitudes and functions."""
    rng, lanes = bench.bench.numpy_rng, catalog_parameters().lanes
    values = rng.integers(-(1 << 15), 1 << 15, count * lanes) >> rng.integers(0, 16, count * lanes)
    return slices_of(values, rng.integers(0, 2, count), 5)


@cocotb.test()
@cocotb.parametrize(function=list(Function))
async def every_input(dut: Any, function: Function) -> None:
    """Run all 65,536 inputs at full rate."""
    bench = bench_for(dut, f"every_input {function}")
    values = np.arange(-(1 << 15), 1 << 15)
    cycles = await run_slices(bench, slices_of(values, function.value, 8))
    bench.bench.record(cycles=cycles, ideal_cycles=len(values) // catalog_parameters().lanes)


@cocotb.test()
async def real_projections(dut: Any) -> None:
    """Run SmolLM2's gate projections through SiLU."""
    bench = bench_for(dut, "real_projections")
    gates = real_gates()
    await run_slices(bench, slices_of(gates, Function.SILU.value, 192))
    tensors = f"SmolLM2 layers {LAYERS}, gate projections of {SHOWN_TOKENS} tokens each"
    one = 1 << VALUE.fraction_bits
    got = activation(gates, Function.SILU.value, catalog_parameters()) / one
    error = root_mean_square(got - exact_activation(gates / one, Function.SILU))
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors, rms_error=error)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random slices with every pair of pause patterns, both functions mixed."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, sink)
    await run_slices(bench, random_slices(bench, 200))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state must survive."""
    bench = bench_for(dut, "resets", "random", "bursty")
    slices = random_slices(bench, 60)
    await bench.disturb(slices, times=12, longest=40)
    await run_slices(bench, slices)
