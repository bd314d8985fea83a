"""Testbench of the special function unit: all functions in parallel, on one layer of SmolLM2."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from typing import Any

import cocotb
import numpy as np

from golden.kelle.eviction.systolic_evictor import Integers
from golden.kelle.sfu import SfuModel
from hdl.kelle.sfu import SfuParameters
from testbenches.bench import catalog_parameters
from testbenches.nonlinear import (
    norm_bench,
    tb_activation_functions,
    tb_rotary_embedding,
    tb_softmax,
)
from testbenches.shared_tests import SLOW, reset_test, stall_test
from testbenches.unit_bench import Fields, Items, UnitBench

BLOCKED = 300
"""Cycles, enough to fill all buffers at small dimensions."""


def prepare(p: SfuParameters) -> None:
    """Capture the tensors before the simulator starts."""
    tb_softmax.prepare(p.softmax)


def last_of(count: int, slices: int) -> Any:
    """Return flags that mark the last slice of each group."""
    return np.tile(np.arange(slices) == slices - 1, count).astype(np.int64)


@dataclass(frozen=True)
class Work:
    """Tensors for every function.

    Parameters
    ----------
    scores : Rows
        Rows of scores for the softmax.
    activations : Integers
        Slices [n, lanes], alternately for SiLU and GeLU.
    states, epsilon, weights : Integers
        Rows [n, width] for the norm, each with its epsilon and its weights.
    vectors, positions : Integers
        Vectors [n, head_size] for the rotary embedding, and their positions.
    """

    scores: tb_softmax.Rows
    activations: Integers
    states: Integers
    epsilon: Integers
    weights: Integers
    vectors: Integers
    positions: Integers

    @property
    def functions(self) -> Integers:
        """Function of each slice of `activations`."""
        return np.arange(len(self.activations)) % 2


def offered(work: Work, p: SfuParameters) -> dict[str, Items]:
    """Return the items of every input."""
    norm, rotary = p.norm, p.rotary
    return {
        "scores": tb_softmax.offered(work.scores, p.softmax),
        "activation_inputs": {
            "values": work.activations,
            "function": work.functions,
            "last": last_of(len(work.activations) // 4, 4),
        },
        "states": {
            "values": work.states.reshape(-1, norm.lanes),
            "epsilon": np.repeat(work.epsilon, norm.slices),
            "last": last_of(len(work.states), norm.slices),
        },
        "weights": work.weights.reshape(-1, norm.lanes),
        "vectors": {
            "values": work.vectors.reshape(-1, rotary.lanes),
            "position": np.repeat(work.positions, rotary.slices),
            "last": last_of(len(work.vectors), rotary.slices),
        },
    }


def expected(work: Work, p: SfuParameters) -> dict[str, Fields]:
    """Return the items of every output."""
    model = SfuModel(p)
    count = len(work.states)
    rows = zip(
        np.split(work.states, count), np.split(work.epsilon, count), work.weights, strict=True
    )
    return {
        "probabilities": tb_softmax.expected(work.scores, p.softmax),
        "activation_outputs": {
            "values": model.activation(work.activations, work.functions[:, np.newaxis]),
            "last": last_of(len(work.activations) // 4, 4),
        },
        "normalised": {
            "values": np.concatenate([model.rms_norm(*row) for row in rows]).reshape(
                -1, p.norm.lanes
            ),
            "last": last_of(count, p.norm.slices),
        },
        "rotated": {
            "values": model.rotate(work.vectors, work.positions).reshape(-1, p.rotary.lanes),
            "last": last_of(len(work.vectors), p.rotary.slices),
        },
    }


@cache
def real_work(p: SfuParameters) -> Work:
    """Return scores, gates, hidden states, queries and keys of SmolLM2."""
    lanes = p.activation.lanes
    states, epsilon, weights = norm_bench.real_rows(p.norm)
    vectors, positions = tb_rotary_embedding.real_vectors(p.rotary)
    return Work(
        scores=tb_softmax.real_rows(p.softmax)[::9],
        activations=tb_activation_functions.real_gates()[: 600 * lanes].reshape(-1, lanes),
        states=states[:6],
        epsilon=epsilon[:6],
        weights=weights[:6],
        vectors=vectors,
        positions=positions,
    )


def random_work(bench: UnitBench[Work], rows: int = 12) -> Work:
    """Return values of all magnitudes for some rows, and a comparable number of other vectors."""
    p, rng = bench.p, bench.bench.numpy_rng
    values = rng.integers(-(1 << 15), 1 << 15, (10 * rows, p.activation.lanes))
    states, epsilon, weights = norm_bench.random_rows(rng, p.norm, rows // 5, operands=1)
    vectors, positions = tb_rotary_embedding.random_vectors(rng, p.rotary, 2 * rows)
    return Work(
        scores=tb_softmax.random_rows(rng, p.softmax, rows),
        activations=values >> rng.integers(0, 16, values.shape),
        states=states,
        epsilon=epsilon,
        weights=weights,
        vectors=vectors,
        positions=positions,
    )


def every_bit(bench: UnitBench[Work]) -> Work:
    """Return the values of the functions' own testbenches, which exercise every bit."""
    work, softmax = random_work(bench, 60), bench.p.softmax
    rising = tb_softmax.rising_rows(bench.bench.numpy_rng, softmax)
    return replace(work, scores=work.scores + tb_softmax.extreme_rows(softmax) + rising)


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> UnitBench[Work]:
    """Attach the streams of all functions, and their model."""
    p: SfuParameters = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={
            "scores": p.softmax.slice_layout,
            "activation_inputs": p.activation.slice_layout,
            "states": p.norm.slice_layout,
            "weights": p.norm.values_layout,
            "vectors": p.rotary.slice_layout,
        },
        outputs={
            "probabilities": p.softmax.result_layout,
            "activation_outputs": p.activation.result_layout,
            "normalised": p.norm.result_layout,
            "rotated": p.rotary.result_layout,
        },
        offered=lambda work: offered(work, p),
        expected=lambda work: expected(work, p),
    )


@cocotb.test()
async def all_functions(dut: Any) -> None:
    """Run all functions in parallel on real tensors at full rate."""
    bench = bench_for(dut, "all_functions")
    work = real_work(bench.p)
    cycles = await bench.run(work)
    # Ideal cycles: those of the longest stream at one slice per cycle.
    slices = max(len(items["last"]) for items in expected(work, bench.p).values())
    tensors = "SmolLM2 layers 0, 14, 29: scores, gates, hidden states, queries and keys"
    bench.bench.record(cycles=cycles, ideal_cycles=slices, tensors=tensors)


@cocotb.test()
@cocotb.parametrize(source=["none", "random"])
async def blocked_outputs(dut: Any, source: str) -> None:
    """Stall all outputs until every buffer is full, repeatedly.

    No pattern of the shared tests pauses as long as the buffers take to fill.
    """
    bench = bench_for(dut, f"blocked_outputs {source}", source)
    for sink in bench.sinks.values():
        sink.pauses = cycle([True] * BLOCKED + [False] * BLOCKED)
    await bench.run(every_bit(bench))


real_stalls = stall_test(
    bench_for,
    lambda bench: real_work(bench.p),
    pairs=[(pattern, pattern) for pattern in SLOW],
    name="real_stalls",
)
stalls = stall_test(bench_for, every_bit)
resets = reset_test(bench_for, random_work, begun=every_bit, longest=200, rounds=8)
