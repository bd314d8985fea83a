"""Testbench of the special function unit: all functions at once, on one layer of SmolLM2."""

from typing import Any

import cocotb
import numpy as np

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
from testbenches.stream_bench import Fields
from testbenches.streams import PAUSES


def prepare(p: SfuParameters) -> None:
    """Capture the tensors before the simulator starts."""
    tb_softmax.prepare(p.softmax)


def last_of(count: int, slices: int) -> Any:
    """Mark the last of every so many slices."""
    return np.tile(np.arange(slices) == slices - 1, count).astype(np.int64)


class Work:
    """What goes into every stream, and what must come out."""

    def __init__(self, p: SfuParameters) -> None:
        self.p, self.model = p, SfuModel(p)
        self.inputs: dict[str, list[int]] = {}
        self.expected: dict[str, tuple[Any, Fields]] = {}
        self.add_softmax()
        self.add_activation()
        self.add_norm()
        self.add_rotary()

    def add_softmax(self) -> None:
        """Add attention scores."""
        p = self.p.softmax
        rows = tb_softmax.real_rows(p)[::9]
        offered, answers = tb_softmax.offered(rows, p), tb_softmax.expected(rows, p)
        self.inputs["scores"] = to_integers(pack(p.slice_layout, offered))
        self.expected["probabilities"] = p.result_layout, answers

    def add_activation(self) -> None:
        """Add gate projections, by turns through SiLU and GeLU."""
        p = self.p.activation
        values = tb_activation_functions.real_gates()[: 600 * p.lanes].reshape(-1, p.lanes)
        functions, last = np.arange(len(values)) % 2, last_of(len(values) // 4, 4)
        slices = {"values": values, "function": functions, "last": last}
        self.inputs["activation_inputs"] = to_integers(pack(p.slice_layout, slices))
        results = self.model.activation(values, functions[:, np.newaxis])
        self.expected["activation_outputs"] = p.result_layout, {"values": results, "last": last}

    def add_norm(self) -> None:
        """Add hidden states and the weights of one norm."""
        p = self.p.norm
        states, epsilon, weights = (part[:6] for part in norm_bench.real_rows(p))
        last = last_of(len(states), p.slices)
        slices = {
            "values": states.reshape(-1, p.lanes),
            "epsilon": np.repeat(epsilon, p.slices),
            "last": last,
        }
        self.inputs["states"] = to_integers(pack(p.slice_layout, slices))
        self.inputs["weights"] = to_integers(pack(p.values_layout, weights.reshape(-1, p.lanes)))
        results = self.model.rms_norm(states, epsilon, weights[0]).reshape(-1, p.lanes)
        self.expected["normalised"] = p.result_layout, {"values": results, "last": last}

    def add_rotary(self) -> None:
        """Add queries and keys."""
        p = self.p.rotary
        vectors, positions = tb_rotary_embedding.real_vectors(p)
        last = last_of(len(vectors), p.slices)
        slices = {
            "values": vectors.reshape(-1, p.lanes),
            "position": np.repeat(positions, p.slices),
            "last": last,
        }
        self.inputs["vectors"] = to_integers(pack(p.slice_layout, slices))
        results = self.model.rotate(vectors, positions).reshape(-1, p.lanes)
        self.expected["rotated"] = p.result_layout, {"values": results, "last": last}


async def run_work(dut: Any, salt: str, source: str, sink: str, *, resets: int = 0) -> None:
    """Run all streams at once, after some resets in the middle, and compare every value."""
    work = Work(catalog_parameters())
    bench = Bench(dut, salt)
    sources = {name: bench.source(name, source) for name in work.inputs}
    sinks = {name: bench.sink(name, sink) for name in work.expected}
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
    if source == sink == "none" and not resets:
        # Bound: the longest of the streams at one slice a cycle.
        tensors = "SmolLM2 layers 0, 14, 29: scores, gates, hidden states, queries and keys"
        bench.record(cycles=cycles, ideal_cycles=max(counts.values()), tensors=tensors)


@cocotb.test()
@cocotb.parametrize(pattern=list(PAUSES))
async def all_functions(dut: Any, pattern: str) -> None:
    """Run every function at once, all streams with one kind of pauses."""
    await run_work(dut, f"all_functions {pattern}", pattern, pattern)


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    await run_work(dut, "resets", "random", "bursty", resets=8)
