"""Testbench of the MD module: SmolLM2's keys, random codes, equal counters, stalls, resets."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.lad.md.mode_discrepancy_module import Discrepancies, Positions, discrepancies
from golden.lad.vpu.vector_processing_unit import dot_product
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from testbenches.arith.dot_operands import hard_partners, trimmed
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, head_vectors, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Step:
    """Query [d], max_s, and keys [n, d] and marks of active positions."""

    query: Codes
    maximum: int
    keys: Codes
    position: NDArray[np.int64]
    before: Positions

    def answer(self, p: ModeDiscrepancyModuleParameters) -> Discrepancies:
        """Return the expected results."""
        return discrepancies(self.query, self.keys, self.maximum, self.before, table=p.table)


class MdBench:
    """Connections to the module's four streams."""

    def __init__(
        self, dut: Any, salt: str, source: str = "none", sink: str = "none", updates: str = "none"
    ) -> None:
        self.p: ModeDiscrepancyModuleParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.steps = self.bench.source("steps", source)
        self.active = self.bench.source("active", source)
        self.sinks = {
            "coefficients": self.bench.sink("coefficients", sink),
            "updates": self.bench.sink("updates", updates),
        }
        self.layouts = {
            "coefficients": self.p.lanes_layout(self.p.coefficient_layout),
            "updates": self.p.lanes_layout(self.p.update_layout),
        }

    def offer(self, steps: list[Step]) -> None:
        """Queue steps; lanes without a position carry noise."""
        p, rng = self.p, self.bench.numpy_rng
        headers = {
            "query": np.stack([step.query for step in steps]),
            "maximum": np.array([step.maximum for step in steps]),
        }
        self.steps.send(to_integers(pack(p.step_layout, headers)))
        for step in steps:
            count = len(step.position)
            transfers = -(-count // p.lanes)

            def spread(array: Any, limit: int, count: int = count, size: int = transfers) -> Any:
                array = np.asarray(array)
                shape = (size * p.lanes, *array.shape[1:])
                padded = rng.integers(0, limit, shape)
                padded[:count] = array
                return padded.reshape(size, p.lanes, *array.shape[1:])

            before = step.before
            marks = {
                "position": spread(step.position, p.slots),
                "mode": spread(before.mode, 16),
                "count": spread(before.count, 4096),
                "counters": spread(before.counters, 4096),
                "recent": spread(before.recent, 2),
                "graduates": spread(before.graduates, 2),
            }
            fields = {
                "keys": spread(step.keys, 1 << 16),
                "marks": marks,
                "present": self._present(count),
                "last": (np.arange(transfers) == transfers - 1).astype(np.int64),
            }
            self.active.send(to_integers(pack(p.active_layout, fields)))

    def _present(self, count: int) -> NDArray[np.int64]:
        """Return a mask of the lanes with a position for each transfer."""
        lanes = self.p.lanes
        there = np.minimum(count - np.arange(0, count, lanes), lanes)
        return (1 << there) - 1

    async def run(self, steps: list[Step]) -> int:
        """Reset, run steps and compare; return the cycles to the last coefficients."""
        await self.bench.reset()
        self.offer(steps)
        total = sum(-(-len(step.position) // self.p.lanes) for step in steps)
        cycles = await self.bench.run(
            until=lambda: all(len(sink.received) == total for sink in self.sinks.values())
        )
        for _ in range(20):
            await self.bench.step()
        answers = [step.answer(self.p) for step in steps]
        position = np.concatenate([step.position for step in steps])
        counts = [len(step.position) for step in steps]
        self._check("coefficients", counts, answers, ("alpha_score", "alpha", "beta", "update"))
        self._check("updates", counts, answers, ("mode", "count", "counters", "update"), position)
        return cycles

    def _check(
        self,
        stream: str,
        counts: list[int],
        answers: list[Discrepancies],
        names: tuple[str, ...],
        position: Any = None,
    ) -> None:
        layout, received = self.layouts[stream], self.sinks[stream].received
        got = unpack(layout, from_integers([payload for _cycle, payload in received], layout.size))
        present = np.concatenate([self._present(count) for count in counts])
        self.bench.compare("present", present, got["present"])
        lane = np.arange(self.p.lanes)
        there = (present[:, np.newaxis] >> lane & 1).astype(bool).reshape(-1)
        last = np.concatenate(
            [
                np.arange(-(-count // self.p.lanes)) == -(-count // self.p.lanes) - 1
                for count in counts
            ]
        )
        self.bench.compare("last", last.astype(np.int64), got["last"])
        cycles = np.repeat([cycle for cycle, _payload in received], self.p.lanes)[there]
        expected = {
            name: np.concatenate([getattr(answer, name) for answer in answers]) for name in names
        }
        if position is not None:
            expected["position"] = position
        for name, wanted in expected.items():
            shown = got["lanes"][name]
            shown = shown.reshape(-1, *shown.shape[2:])[there]
            self.bench.compare(name, wanted.astype(np.int64), shown, cycles=cycles)


def marks(
    p: ModeDiscrepancyModuleParameters, rng: np.random.Generator, count: int
) -> tuple[NDArray[np.int64], Positions]:
    """Return ascending positions, and marks whose counters are often equal or saturated."""
    position = np.sort(rng.choice(p.slots, count, replace=False))
    most = rng.choice([3, 3, 40, 4095], (count, 1))
    counters = np.minimum(rng.integers(0, 4096, (count, p.table.intervals)), most)
    counters = np.where(rng.random(counters.shape) < 0.1, most, counters)
    recent = rng.random(count) < 0.3
    graduates = recent & (rng.random(count) < 0.3)
    mode = rng.integers(0, p.table.intervals, count)
    # Often the largest counter is the mode's, as in real decoding.
    own = np.where(rng.random(count) < 0.5, counters.max(axis=1), rng.integers(0, 4096, count))
    return position, Positions(mode, own, counters, recent, graduates)


def random_steps(p: ModeDiscrepancyModuleParameters, rng: np.random.Generator) -> list[Step]:
    """Return steps of random codes with every number of positions in the last transfer."""
    steps = []
    # Each lane needs many different products, also where there are few lanes.
    more = 30 if p.vector.head_size < 16 else 8
    for count in (1, *range(2, 2 * p.lanes + 2), *rng.integers(1, 60, more)):
        count = int(min(count, p.slots))
        position, before = marks(p, rng, count)
        size = p.vector.head_size
        query = trimmed(rng, codes(rng.standard_normal(size)))
        hard = hard_partners(rng, np.broadcast_to(query, (count, size)))
        keys = np.where(rng.random((count, 1)) < 0.5, hard, random_codes(rng, (count, size)))
        # Scores on and next to bounds, in any lane: the maximum is that far above one of them.
        bound = values(np.array(p.table.lowers[int(rng.integers(0, len(p.table.lowers)))]))
        near = codes(values(dot_product(query, keys[rng.integers(count), np.newaxis])) - bound)[0]
        maximum = int(rng.choice([int(near), 0, int(random_codes(rng, (1,))[0])]))
        steps.append(Step(query, maximum, keys, position, before))
    return steps


def real_steps(p: ModeDiscrepancyModuleParameters, number: int, active: int) -> list[Step]:
    """Return SmolLM2's queries and keys with random marks."""
    rng = np.random.default_rng(number)
    steps = []
    for index in range(number):
        layer, size = LAYERS[index % len(LAYERS)], p.vector.head_size
        queries, keys = (head_vectors(name, size, layer=layer, head=index % 9) for name in "qk")
        query = codes(values(queries[-1 - index]) / np.sqrt(size))
        count = min(active, p.slots)
        position, before = marks(p, rng, count)
        chosen = keys[position % len(keys)]
        maximum = int(codes(values(dot_product(query, keys)).max()))
        steps.append(Step(query, maximum, chosen, position, before))
    return steps


@cocotb.test()
async def real_keys(dut: Any) -> None:
    """Run SmolLM2's keys: `lanes` positions per cycle."""
    bench = MdBench(dut, "real_keys")
    steps = real_steps(bench.p, 6 if context()["full"] else 3, 201)
    await bench.run(steps)
    # Bound: |J| / 2 of Equation 7, and one cycle to load each query.
    ideal = sum(-(-len(step.position) // bench.p.lanes) + 1 for step in steps)
    seen = [cycle for cycle, _payload in bench.sinks["coefficients"].received]
    bench.bench.record(
        cycles=seen[-1] - seen[0] + 2,
        ideal_cycles=ideal,
        tensors=f"SmolLM2 layers {LAYERS}, {len(steps)} steps of {len(steps[0].position)} keys",
    )


@cocotb.test()
async def latency(dut: Any) -> None:
    """Measure the latency of one key."""
    bench = MdBench(dut, "latency")
    p = bench.p
    cycles = await bench.run(real_steps(p, 1, 1))
    expected = p.vector.scalar_latency + 2 * p.add_stages + p.multiply_stages + 5
    bench.bench.compare("cycles", np.array([expected]), np.array([cycles]))


stalls = stall_test(
    partial(MdBench, updates="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
)
resets = reset_test(
    partial(MdBench, updates="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
    longest=60,
    times=6,
)
