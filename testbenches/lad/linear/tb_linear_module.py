"""Testbench of linear layers: SmolLM2's projections, matrices of any shape, stalls, resets."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.linear.linear_module import linear, sliced
from golden.llm import open_trace
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.lad.parameters import LadTilesParameters
from testbenches.applicable import Run, only_if
from testbenches.arith.dot_operands import hard_partners, trimmed
from testbenches.bench import Bench, catalog_parameters
from testbenches.lad.vectors import LAYERS, TOKENS, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Task:
    """A matrix [rows, columns] and inputs [samples, columns]."""

    weights: Codes
    inputs: Codes

    def groups(self, p: LinearModuleParameters) -> int:
        """Return the number of groups of rows."""
        return -(-len(self.weights) // p.units)

    def slices(self, p: LinearModuleParameters) -> int:
        """Return the number of slices of an input."""
        return -(-self.inputs.shape[1] // p.vector.head_size)

    def outputs(self, p: LinearModuleParameters) -> int:
        """Return the number of transfers of sums."""
        return self.groups(p) * len(self.inputs)


class LinearBench:
    """Connections to the module's four streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: LinearModuleParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.tasks, self.inputs, self.weights = (
            self.bench.source(name, source) for name in ("tasks", "inputs", "weights")
        )
        self.outputs = self.bench.sink("outputs", sink)

    def offer(self, tasks: list[Task]) -> None:
        """Queue tasks."""
        for task in tasks:
            payloads = task_payloads(self.p, task, self.bench.numpy_rng)
            for name in ("tasks", "inputs", "weights"):
                getattr(self, name).send(payloads[name])

    async def run(self, tasks: list[Task]) -> int:
        """Reset, run tasks and compare; return the cycles to the last sum."""
        await self.bench.reset()
        self.offer(tasks)
        total = sum(task.outputs(self.p) for task in tasks)
        cycles = await self.bench.run(until=lambda: len(self.outputs.received) == total)
        for _ in range(20):
            await self.bench.step()
        check_sums(self.bench, self.p, tasks, self.outputs)
        return cycles


def task_payloads(
    p: LinearModuleParameters,
    task: Task,
    rng: np.random.Generator,
    shared: LadTilesParameters | None = None,
) -> dict[str, list[int]]:
    """Return the payloads of the three input streams; missing rows of a matrix are noise.

    Tiles that share a task have its groups round-robin.
    """
    rounds, more = divmod(task.groups(p) - 1, shared.tiles if shared else 1)
    groups = rounds + 1 if shared else task.groups(p)
    header = {
        "samples": np.array([len(task.inputs)]),
        "slices": np.array([task.slices(p)]),
        "groups": np.array([groups]),
    } | ({"more": np.array([more])} if shared else {})
    layout = shared.task_layout if shared else p.task_layout
    size = p.vector.head_size
    inputs = sliced(task.inputs, size).swapaxes(0, 1).reshape(-1, size)
    return {
        "tasks": to_integers(pack(layout, header)),
        "inputs": to_integers(pack(p.input_layout, {"slice": inputs})),
        "weights": weight_payloads(p, task.weights, rng),
    }


def weight_payloads(
    p: LinearModuleParameters, matrix: Codes, rng: np.random.Generator
) -> list[int]:
    """Return the payloads of the weights of a matrix [rows, columns]."""
    size = p.vector.head_size
    missing = -len(matrix) % p.units
    noise = rng.integers(0, 1 << 16, (missing, matrix.shape[1]))
    rows = sliced(np.concatenate([matrix, noise]), size)
    rows = rows.reshape(-1, p.units, *rows.shape[1:]).transpose(2, 0, 1, 3)
    return to_integers(pack(p.weights_layout, {"rows": rows.reshape(-1, p.units, size)}))


def check_sums(bench: Bench, p: LinearModuleParameters, tasks: list[Task], sink: Any) -> None:
    """Compare the sums that a sink has received with the model's."""
    layout, start = p.output_layout, 0
    received = [payload for _cycle, payload in sink.received]
    got = unpack(layout, from_integers(received, layout.size))
    for task in tasks:
        end = start + task.outputs(p)
        samples, rows = len(task.inputs), len(task.weights)
        sums = got["sums"][start:end].reshape(-1, samples, p.units).swapaxes(0, 1)
        expected = linear(task.weights, task.inputs, head_size=p.vector.head_size)
        shown = sums.reshape(samples, -1)[:, :rows]
        bench.compare("sums", expected.astype(np.int64), shown, show=hex)
        last = np.arange(end - start) == end - start - 1
        bench.compare("last", last.astype(np.int64), got["last"][start:end])
        start = end


def real_task(p: LinearModuleParameters, layer: int, name: str) -> Task:
    """Return a part of SmolLM2's matrix and as many tokens as there are samples at most."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS).linear(layer, name)
    columns = min(trace.weight.shape[1], p.slices * p.vector.head_size)
    rows = min(trace.weight.shape[0], p.groups * p.units, 60 * p.units)
    return Task(codes(trace.weight[:rows, :columns]), codes(trace.inputs[-p.samples :, :columns]))


def random_task(p: LinearModuleParameters, rng: np.random.Generator, *, tiles: int = 1) -> Task:
    """Return random numbers of any shape, often the smallest or the largest for `tiles` tiles."""

    def size(high: int) -> int:
        return int(rng.choice([1, high, int(rng.integers(1, high + 1))]))

    columns = size(min(p.slices, 4) * p.vector.head_size)
    rows, samples = size(min(p.groups, 3) * p.units * tiles), size(p.samples)
    inputs = random_codes(rng, (samples, columns))
    weights = random_codes(rng, (rows, columns))
    if rng.random() < 0.7:
        # Difficult for one sample: within a slice, or across slices.
        inputs = np.where(rng.random((samples, 1)) < 0.5, trimmed(rng, inputs), inputs)
        width = int(rng.choice([p.vector.head_size, columns]))
        part = slice(begin := width * int(rng.integers(-(-columns // width))), begin + width)
        other = np.broadcast_to(inputs[rng.integers(samples), part], weights[:, part].shape)
        weights[:] = 0
        weights[:, part] = hard_partners(rng, other)
    return Task(weights, inputs)


def several_slices(run: Run) -> bool:
    """Return whether a sum can extend over several slices."""
    return run.parameters.slices > 1


@cocotb.test()
async def real_projections(dut: Any) -> None:
    """Run SmolLM2's projections: one cycle per sample and transfer of weights."""
    bench = LinearBench(dut, "real_projections")
    p = bench.p
    tasks = [real_task(p, layer, "q_proj") for layer in LAYERS]
    await bench.run(tasks)
    ideal = sum(task.outputs(p) * task.slices(p) for task in tasks)
    # The inputs of a task are transferred before its products.
    filled = sum(len(task.inputs) * task.slices(p) for task in tasks)
    first, last = bench.outputs.received[0][0], bench.outputs.received[-1][0]
    before = tasks[0].outputs(p) * (tasks[0].slices(p) - 1)
    bench.bench.record(
        cycles=last - first + 1,
        ideal_cycles=ideal - before + filled - len(tasks[0].inputs) * tasks[0].slices(p),
        tensors=f"SmolLM2 layers {LAYERS}, q_proj {tasks[0].weights.shape}, {p.samples} tokens",
    )


@cocotb.test()
async def latency(dut: Any) -> None:
    """Measure the latency of one product."""
    bench = LinearBench(dut, "latency")
    p = bench.p
    cycles = await bench.run([Task(codes(np.ones((1, 1))), codes(np.ones((1, 1))))])
    # One cycle for the task's input.
    expected = 1 + p.vector.scalar_latency + p.add_stages + 4
    bench.bench.compare("cycles", np.array([expected]), np.array([cycles]))


@cocotb.test()
@only_if(several_slices, "one slice waits for no other")
async def pace(dut: Any) -> None:
    """Measure the cycles of a further slice: one per sample, or until its first sum is written."""
    bench = LinearBench(dut, "pace")
    p, size = bench.p, bench.p.vector.head_size
    for samples in range(1, min(p.samples, p.pace + 2) + 1):
        shapes = [slices * size for slices in (p.slices - 1, p.slices)]
        ones = [[codes(np.ones((n, width))) for n in (p.units, samples)] for width in shapes]
        tasks = [Task(*both) for both in ones]
        cycles = [await bench.run([task]) for task in tasks]
        bench.bench.compare(
            f"cycles of a slice of {samples} samples",
            np.array([samples + samples + (p.pace - 1 if samples < p.pace else 0)]),
            np.array([cycles[1] - cycles[0]]),
        )


def random_tasks(bench: LinearBench, count: int) -> list[Task]:
    """Return random numbers and shapes."""
    rng = bench.bench.numpy_rng
    return [random_task(bench.p, rng) for _ in range(count)]


# Each lane needs many different products, also where there are few lanes.
stalls = stall_test(
    LinearBench,
    lambda bench: random_tasks(bench, 8 if bench.p.vector.head_size >= 16 else 100),
)
resets = reset_test(LinearBench, lambda bench: random_tasks(bench, 4), longest=60, times=6)
