"""Testbench of the probability quantiser: every input, SmolLM2's probabilities, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.p3llm.quantisers.probability_quantiser import probability_quantiser
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

QUERIES = 16


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def slices_of(values: NDArray[np.int64], last: int) -> Fields:
    """Cut values into slices; the last of every `last` slices is marked."""
    values = values.reshape(-1, catalog_parameters().lanes)
    marks = (np.arange(len(values)) % last == last - 1).astype(np.int64)
    return {"values": values, "last": marks}


async def run_slices(bench: StreamBench, slices: Fields) -> int:
    """Run slices and compare every code; return the cycles."""
    cycles = await bench.run(slices)
    expected = probability_quantiser(slices["values"], catalog_parameters())
    bench.check({"codes": expected, "last": slices["last"]})
    return cycles


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> StreamBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    return StreamBench(
        dut,
        salt,
        source=("probabilities", p.slice_layout),
        sink=("results", p.result_layout),
        pauses=(source, sink),
    )


@cocotb.test()
async def every_input(dut: Any) -> None:
    """All 65,536 FP16 codes, at full rate."""
    bench = bench_for(dut, "every_input")
    values = np.arange(1 << 16)
    cycles = await run_slices(bench, slices_of(values, 8))
    bench.bench.record(cycles=cycles, ideal_cycles=len(values) // catalog_parameters().lanes)


@cocotb.test()
async def real_probabilities(dut: Any) -> None:
    """Probabilities of SmolLM2's last queries over all their tokens."""
    bench = bench_for(dut, "real_probabilities")
    rows = [trace().attention_trace(layer, 0).probabilities[-QUERIES:] for layer in LAYERS]
    values = codes(np.stack(rows)).astype(np.int64)
    await run_slices(bench, slices_of(values.reshape(-1), 16))
    tensors = f"SmolLM2 layers {LAYERS}, probabilities of {QUERIES} queries each"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random codes under every pair of stall patterns."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, sink)
    lanes = catalog_parameters().lanes
    values = bench.bench.numpy_rng.integers(0, 1 << 16, 200 * lanes)
    await run_slices(bench, slices_of(values, 5))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; results after the reset do not depend on earlier data."""
    bench = bench_for(dut, "resets", "random", "bursty")
    lanes = catalog_parameters().lanes
    slices = slices_of(bench.bench.numpy_rng.integers(0, 1 << 16, 60 * lanes), 7)
    await bench.disturb(slices, times=12, longest=40)
    await run_slices(bench, slices)
