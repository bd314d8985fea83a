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
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

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


def results(slices: Fields) -> Fields:
    """Return the results of slices."""
    functions = slices["function"][:, np.newaxis]
    values = activation(slices["values"], functions, catalog_parameters())
    return {"values": values, "last": slices["last"]}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> UnitBench[Fields]:
    """Attach the unit's streams and its model."""
    p = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={"inputs": p.slice_layout},
        outputs={"outputs": p.result_layout},
        offered=lambda slices: {"inputs": slices},
        expected=lambda slices: {"outputs": results(slices)},
    )


def random_slices(bench: UnitBench[Fields], count: int) -> Fields:
    """Return slices of random magnitudes and functions."""
    rng, lanes = bench.bench.numpy_rng, bench.p.lanes
    values = rng.integers(-(1 << 15), 1 << 15, count * lanes) >> rng.integers(0, 16, count * lanes)
    return slices_of(values, rng.integers(0, 2, count), 5)


@cocotb.test()
@cocotb.parametrize(function=list(Function))
async def every_input(dut: Any, function: Function) -> None:
    """Run all 65,536 inputs at full rate."""
    bench = bench_for(dut, f"every_input {function}")
    values = np.arange(-(1 << 15), 1 << 15)
    cycles = await bench.run(slices_of(values, function.value, 8))
    bench.bench.record(cycles=cycles, ideal_cycles=len(values) // catalog_parameters().lanes)


@cocotb.test()
async def real_projections(dut: Any) -> None:
    """Run SmolLM2's gate projections through SiLU."""
    bench = bench_for(dut, "real_projections")
    gates = real_gates()
    await bench.run(slices_of(gates, Function.SILU.value, 192))
    tensors = f"SmolLM2 layers {LAYERS}, gate projections of {SHOWN_TOKENS} tokens each"
    one = 1 << VALUE.fraction_bits
    got = activation(gates, Function.SILU.value, catalog_parameters()) / one
    error = root_mean_square(got - exact_activation(gates / one, Function.SILU))
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors, rms_error=error)


stalls = stall_test(bench_for, lambda bench: random_slices(bench, 200))
resets = reset_test(bench_for, lambda bench: random_slices(bench, 60), times=12, longest=40)
