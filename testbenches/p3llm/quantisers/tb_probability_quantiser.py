"""Testbench of the probability quantiser: every input, SmolLM2's probabilities, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.p3llm.quantisers.probability_quantiser import probability_quantiser
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, trace
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

QUERIES = 16


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def slices_of(values: NDArray[np.int64], last: int) -> Fields:
    """Cut values into slices; the last of every `last` slices is marked."""
    values = values.reshape(-1, catalog_parameters().lanes)
    marks = (np.arange(len(values)) % last == last - 1).astype(np.int64)
    return {"values": values, "last": marks}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> UnitBench[Fields]:
    """Attach the unit's streams and its model."""
    p = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={"probabilities": p.slice_layout},
        outputs={"results": p.result_layout},
        offered=lambda slices: {"probabilities": slices},
        expected=lambda slices: {
            "results": {
                "codes": probability_quantiser(slices["values"], p),
                "last": slices["last"],
            }
        },
    )


def random_slices(bench: UnitBench[Fields], count: int, last: int) -> Fields:
    """Return slices of random codes."""
    return slices_of(bench.bench.numpy_rng.integers(0, 1 << 16, count * bench.p.lanes), last)


@cocotb.test()
async def every_input(dut: Any) -> None:
    """All 65,536 FP16 codes, at full rate."""
    bench = bench_for(dut, "every_input")
    values = np.arange(1 << 16)
    cycles = await bench.run(slices_of(values, 8))
    bench.bench.record(cycles=cycles, ideal_cycles=len(values) // catalog_parameters().lanes)


@cocotb.test()
async def real_probabilities(dut: Any) -> None:
    """Probabilities of SmolLM2's last queries over all their tokens."""
    bench = bench_for(dut, "real_probabilities")
    rows = [trace().attention_trace(layer, 0).probabilities[-QUERIES:] for layer in LAYERS]
    values = codes(np.stack(rows)).astype(np.int64)
    await bench.run(slices_of(values.reshape(-1), 16))
    tensors = f"SmolLM2 layers {LAYERS}, probabilities of {QUERIES} queries each"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


stalls = stall_test(bench_for, lambda bench: random_slices(bench, 200, 5))
resets = reset_test(bench_for, lambda bench: random_slices(bench, 60, 7), longest=40, times=12)
