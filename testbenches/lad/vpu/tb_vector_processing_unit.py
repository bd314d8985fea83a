"""Testbench of the VPU: SmolLM2's heads, random codes, pauses, resets."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.lad.vpu.vector_processing_unit import dot_product, element_wise
from hdl.lad.vpu.vector_processing_unit import Operation, VectorProcessingUnitParameters
from testbenches.arith.dot_operands import hard_partners, trimmed
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, head_vectors, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import PAUSES, Port, read

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Work:
    """Operations, one per item, each with an optional load of the register row.

    Members
    -------
    load : array [items]
        Load `vec1` into the row, for the operations that follow.
    vec1, vec2 : array [items, head_size]
    scal, operation : array [items]
    """

    load: NDArray[np.int64]
    vec1: Codes
    vec2: Codes
    scal: Codes
    operation: NDArray[np.int64]

    def rows(self) -> Codes:
        """Return the content of the row at each operation; unknown before the first load."""
        latest = np.maximum.accumulate(np.where(self.load == 1, np.arange(len(self.load)), -1))
        return self.vec1[np.concatenate([[0], latest[:-1]])]

    def scalars(self) -> Codes:
        """Return the expected dot products."""
        chosen = self.operation == Operation.DOT_PRODUCT.value
        return dot_product(self.rows()[chosen], self.vec2[chosen])

    def vectors(self) -> Codes:
        """Return the expected vectors."""
        chosen = self.operation != Operation.DOT_PRODUCT.value
        scaled = (self.operation == Operation.SCALE.value)[:, np.newaxis]
        first = np.where(scaled, self.scal[:, np.newaxis], self.rows())
        return element_wise(first[chosen], self.vec2[chosen])


class VectorBench:
    """Drive the ports: one item per cycle without a pause; record the results, which cannot stall.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source : str
        Pause pattern of the operations.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", _sink: str = "none") -> None:
        self.p: VectorProcessingUnitParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.pauses = self.bench.pauses(source)
        names = ("load", "i_vec1", "valid", "operation", "i_vec2", "i_scal")
        self.inputs = {name: Port(getattr(dut, f"port_{name}")) for name in names}
        self.outputs = {
            name: getattr(dut, f"port_{name}")
            for name in ("o_vec", "o_vec_valid", "o_scal", "o_scal_valid")
        }
        self.waiting: deque[tuple[int, ...]] = deque()
        self.received: dict[str, list[tuple[int, int]]] = {"o_vec": [], "o_scal": []}
        self.clear()
        self.bench.add(self)

    def clear(self) -> None:
        """Discard all work."""
        self.waiting.clear()
        for received in self.received.values():
            received.clear()
        for name in ("load", "valid"):
            self.inputs[name].value = 0

    def offer(self, work: Work) -> None:
        """Queue operations."""
        vectors = (to_integers(pack(self.p.vector_layout, part)) for part in (work.vec1, work.vec2))
        vec1, vec2 = vectors
        load, operation, scal = (
            part.tolist() for part in (work.load, work.operation, work.scal.astype(int))
        )
        self.waiting.extend(zip(load, vec1, operation, vec2, scal, strict=True))

    def drive(self) -> None:
        """Drive the next operation; during a pause, noise that must be ignored."""
        begins = bool(self.waiting) and not next(self.pauses)
        self.inputs["valid"].value = int(begins)
        self.inputs["load"].value = 0
        if begins:
            item = self.waiting.popleft()
            for name, value in zip(
                ("load", "i_vec1", "operation", "i_vec2", "i_scal"), item, strict=True
            ):
                self.inputs[name].value = value
        else:
            self.inputs["i_vec1"].value = self.inputs["i_vec2"].value = 0
            self.inputs["operation"].value = self.bench.rng.randrange(3)

    def sample(self) -> None:
        """Record the results that are marked as valid."""
        for name, received in self.received.items():
            if int(self.outputs[f"{name}_valid"].value):
                received.append((self.bench.cycle, read(self.outputs[name])))

    async def run(self, work: Work) -> int:
        """Reset, run operations and compare all results; return the cycles to the last."""
        await self.bench.reset()
        self.offer(work)
        start = self.bench.cycle
        while self.waiting:
            await self.bench.step()
        await self.bench.wait(self.bench.cycle + self.p.scalar_latency + 20)
        self.check("o_scal", work.scalars())
        vectors = work.vectors()
        self.check("o_vec", vectors)
        ends = [cycle for part in self.received.values() for cycle, _value in part]
        return max(ends) - start

    def check(self, name: str, expected: Codes) -> None:
        """Compare the results of one output with the expected ones."""
        cycles = [cycle for cycle, _value in self.received[name]]
        packed = [value for _cycle, value in self.received[name]]
        if name == "o_scal":
            got: Any = np.array(packed, np.int64)
        else:
            layout = self.p.vector_layout
            got = unpack(layout, from_integers(packed, layout.size))
        wanted = expected.astype(np.int64)
        self.bench.compare(name, wanted, got, cycles=cycles, show=lambda code: f"{code:#06x}")

    def random_work(self, count: int) -> Work:
        """Return random operations on random codes; the first one loads the row."""
        rng, shape = self.bench.numpy_rng, (count, self.p.head_size)
        load = (rng.random(count) < 0.3).astype(np.int64)
        operation = rng.integers(0, 3, count)
        # The content of the row after power-up is unknown.
        load[0], operation[0] = 1, Operation.SCALE.value
        vec1 = random_codes(rng, shape)
        work = Work(
            load=load,
            vec1=np.where(rng.random((count, 1)) < 0.5, trimmed(rng, vec1), vec1),
            vec2=random_codes(rng, shape),
            scal=random_codes(rng, (count,)),
            operation=operation,
        )
        hard = rng.random((count, 1)) < 0.5
        return replace(work, vec2=np.where(hard, hard_partners(rng, work.rows()), work.vec2))


def real_work(p: VectorProcessingUnitParameters, steps: int, cached: int) -> Work:
    """Return queries with all keys, loading each query first, then values scaled by scores."""
    parts: dict[str, list[Any]] = {name: [] for name in ("load", "vec1", "vec2", "scal", "op")}
    for number in range(steps):
        layer = LAYERS[number % len(LAYERS)]
        query, keys, values = (
            head_vectors(name, p.head_size, layer=layer, head=number % 9) for name in "qkv"
        )
        scalars = dot_product(query[-1], keys[:cached])
        # The row is loaded while the previous values are scaled.
        parts["load"] += [[1] + [0] * cached, [0] * cached]
        parts["vec1"] += [np.broadcast_to(query[-1], (2 * cached + 1, p.head_size))]
        parts["vec2"] += [values[:1], keys[:cached], values[:cached]]
        parts["scal"] += [scalars[:1], scalars, scalars]
        parts["op"] += [[Operation.SCALE.value]]
        parts["op"] += [[Operation.DOT_PRODUCT.value] * cached, [Operation.SCALE.value] * cached]
    whole = {name: np.concatenate(part) for name, part in parts.items()}
    return Work(
        load=whole["load"],
        vec1=whole["vec1"],
        vec2=whole["vec2"],
        scal=whole["scal"],
        operation=whole["op"],
    )


@cocotb.test()
async def real_heads(dut: Any) -> None:
    """Run SmolLM2's scores and scaled values at one operation per cycle."""
    bench = VectorBench(dut, "real_heads")
    work = real_work(bench.p, 6 if context()["full"] else 3, 200)
    cycles = await bench.run(work)
    count = len(work.load)
    last = (count - 1) + bench.p.vector_latency
    bench.bench.compare("cycles", np.array([last]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, {count} queries, keys and values"
    bench.bench.record(cycles=cycles, ideal_cycles=count, tensors=tensors)


@cocotb.test()
async def latencies(dut: Any) -> None:
    """Check the latency of each kind of result, whatever operations precede and follow."""
    bench = VectorBench(dut, "latencies")
    work = bench.random_work(60)
    await bench.run(work)
    start = bench.bench.cycle - bench.p.scalar_latency - 20 - len(work.load)
    dots = work.operation == Operation.DOT_PRODUCT.value
    for name, chosen, latency in (
        ("o_scal", dots, bench.p.scalar_latency),
        ("o_vec", ~dots, bench.p.vector_latency),
    ):
        expected = np.nonzero(chosen)[0] + start + latency
        got = np.array([cycle for cycle, _value in bench.received[name]])
        bench.bench.compare(f"cycles of {name}", expected, got)


# Each lane needs many different products, also where there are few lanes.
stalls = stall_test(
    VectorBench,
    lambda bench: bench.random_work(300),
    pairs=[(pattern, "none") for pattern in PAUSES],
    runs=lambda bench: max(1, 32 // bench.p.head_size),
)
resets = reset_test(
    VectorBench,
    lambda bench: bench.random_work(20),
    begun=lambda bench: bench.random_work(40),
    longest=40,
    rounds=6,
)
