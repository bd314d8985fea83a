"""Testbench of the special function unit: all functions in parallel, on one layer of SmolLM2."""

from itertools import cycle
from typing import Any

import cocotb
import numpy as np

from golden.kelle.eviction.systolic_evictor import Integers
from golden.kelle.sfu import SfuModel
from hdl.kelle.sfu import SfuParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.nonlinear import (
    norm_bench,
    tb_activation_functions,
    tb_rotary_embedding,
    tb_softmax,
)
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import PAUSES
from testbenches.unit_bench import Fields

BLOCKED = 300
"""Cycles, enough to fill all buffers at small dimensions."""


def prepare(p: SfuParameters) -> None:
    """Capture the tensors before the simulator starts."""
    tb_softmax.prepare(p.softmax)


def last_of(count: int, slices: int) -> Any:
    """Return flags that mark the last slice of each group."""
    return np.tile(np.arange(slices) == slices - 1, count).astype(np.int64)


class Work:
    """Inputs of every stream, and the expected outputs."""

    def __init__(self, p: SfuParameters) -> None:
        self.p, self.model = p, SfuModel(p)
        self.inputs: dict[str, list[int]] = {}
        self.expected: dict[str, tuple[Any, Fields]] = {}

    def add_softmax(self, rows: tb_softmax.Rows) -> None:
        """Add rows of scores."""
        p = self.p.softmax
        offered, answers = tb_softmax.offered(rows, p), tb_softmax.expected(rows, p)
        self.inputs["scores"] = to_integers(pack(p.slice_layout, offered))
        self.expected["probabilities"] = p.result_layout, answers

    def add_activation(self, values: Integers) -> None:
        """Add slices [n, lanes], alternately for SiLU and GeLU."""
        p = self.p.activation
        functions, last = np.arange(len(values)) % 2, last_of(len(values) // 4, 4)
        slices = {"values": values, "function": functions, "last": last}
        self.inputs["activation_inputs"] = to_integers(pack(p.slice_layout, slices))
        results = self.model.activation(values, functions[:, np.newaxis])
        self.expected["activation_outputs"] = p.result_layout, {"values": results, "last": last}

    def add_norm(self, states: Integers, epsilon: Integers, weights: Integers) -> None:
        """Add rows [n, width], each with its epsilon and its weights."""
        p = self.p.norm
        last = last_of(len(states), p.slices)
        slices = {
            "values": states.reshape(-1, p.lanes),
            "epsilon": np.repeat(epsilon, p.slices),
            "last": last,
        }
        self.inputs["states"] = to_integers(pack(p.slice_layout, slices))
        self.inputs["weights"] = to_integers(pack(p.values_layout, weights.reshape(-1, p.lanes)))
        one_by_one = np.split(states, len(states)), np.split(epsilon, len(epsilon)), weights
        rows = zip(*one_by_one, strict=True)
        results = np.concatenate([self.model.rms_norm(*row) for row in rows]).reshape(-1, p.lanes)
        self.expected["normalised"] = p.result_layout, {"values": results, "last": last}

    def add_rotary(self, vectors: Integers, positions: Integers) -> None:
        """Add vectors [n, head_size] at their positions."""
        p = self.p.rotary
        last = last_of(len(vectors), p.slices)
        slices = {
            "values": vectors.reshape(-1, p.lanes),
            "position": np.repeat(positions, p.slices),
            "last": last,
        }
        self.inputs["vectors"] = to_integers(pack(p.slice_layout, slices))
        results = self.model.rotate(vectors, positions).reshape(-1, p.lanes)
        self.expected["rotated"] = p.result_layout, {"values": results, "last": last}


def real_work(p: SfuParameters) -> Work:
    """Return scores, gates, hidden states, queries and keys of SmolLM2."""
    work, lanes = Work(p), p.activation.lanes
    work.add_softmax(tb_softmax.real_rows(p.softmax)[::9])
    work.add_activation(tb_activation_functions.real_gates()[: 600 * lanes].reshape(-1, lanes))
    work.add_norm(*(part[:6] for part in norm_bench.real_rows(p.norm)))
    work.add_rotary(*tb_rotary_embedding.real_vectors(p.rotary))
    return work


def random_work(p: SfuParameters, rng: np.random.Generator) -> Work:
    """Return the values of the functions' own testbenches, which exercise every bit."""
    work, lanes = Work(p), p.activation.lanes
    rows = tb_softmax.random_rows(rng, p.softmax, 60)
    rows += tb_softmax.extreme_rows(p.softmax) + tb_softmax.rising_rows(rng, p.softmax)
    work.add_softmax(rows)
    values = rng.integers(-(1 << 15), 1 << 15, (600, lanes))
    work.add_activation(values >> rng.integers(0, 16, values.shape))
    states, epsilon, weights = norm_bench.random_rows(rng, p.norm, 12, operands=1)
    work.add_norm(states, epsilon, weights)
    work.add_rotary(*tb_rotary_embedding.random_vectors(rng, p.rotary, 120))
    return work


async def run_work(
    dut: Any, salt: str, source: str, sink: str, *, resets: int = 0, drawn: bool = False
) -> None:
    """Run all streams in parallel, after some resets during operation, and compare every value."""
    bench = Bench(dut, salt)
    p = catalog_parameters()
    work = random_work(p, bench.numpy_rng) if drawn else real_work(p)
    sources = {name: bench.source(name, source) for name in work.inputs}
    sinks = {
        name: bench.sink(name, "none" if sink == "blocked" else sink) for name in work.expected
    }
    if sink == "blocked":
        # Stall until every buffer is full, repeatedly.
        for part in sinks.values():
            part.pauses = cycle([True] * BLOCKED + [False] * BLOCKED)
    for attempt in range(resets + 1):
        await bench.reset()
        for name, payloads in work.inputs.items():
            sources[name].send(payloads)
        if attempt < resets:
            for _ in range(bench.rng.randint(1, 200)):
                await bench.step()
    for name in sinks:
        sinks[name].received.clear()
    counts = {name: len(fields["last"]) for name, (_layout, fields) in work.expected.items()}
    cycles = await bench.run(
        until=lambda: all(len(sinks[name].received) >= count for name, count in counts.items())
    )
    for name, (layout, fields) in work.expected.items():
        got = unpack(layout, from_integers([item for _, item in sinks[name].received], layout.size))
        for field, values in fields.items():
            bench.compare(f"{name}.{field}", values, got[field])
    if source == sink == "none" and not drawn:
        # Ideal cycles: those of the longest stream at one slice per cycle.
        tensors = "SmolLM2 layers 0, 14, 29: scores, gates, hidden states, queries and keys"
        bench.record(cycles=cycles, ideal_cycles=max(counts.values()), tensors=tensors)


@cocotb.test()
@cocotb.parametrize(pattern=list(PAUSES))
async def all_functions(dut: Any, pattern: str) -> None:
    """Run all functions in parallel, all streams with the same kind of stalls."""
    await run_work(dut, f"all_functions {pattern}", pattern, pattern)


@cocotb.test()
@cocotb.parametrize(source=["none", "random"], sink=["none", "bursty", "blocked"])
async def any_numbers(dut: Any, source: str, sink: str) -> None:
    """Run all functions on numbers of all magnitudes, with long stalls of the outputs."""
    await run_work(dut, f"any_numbers {source} {sink}", source, sink, drawn=True)


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation: no state remains."""
    await run_work(dut, "resets", "random", "bursty", resets=8)
