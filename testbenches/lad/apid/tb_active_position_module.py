"""Testbench of the APID module: SmolLM2's scores, random codes, all active, stalls, resets."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.lad.apid.active_position_module import exact_interval, identify
from golden.llm import open_trace
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, TOKENS, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Step:
    """Inputs of a step: scores [n], their maximum, modes and counts."""

    scores: Codes
    maximum: int
    modes: NDArray[np.int64]
    counts: NDArray[np.int64]


class ApidBench:
    """Connections to the module's four streams."""

    def __init__(
        self, dut: Any, salt: str, source: str = "none", sink: str = "none", counts: str = "none"
    ) -> None:
        self.p: ActivePositionModuleParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.steps = self.bench.source("steps", source)
        self.groups = self.bench.source("groups", source)
        self.counts = self.bench.sink("counts", counts)
        self.positions = self.bench.sink("positions", sink)

    def offer(self, steps: list[Step]) -> None:
        """Queue steps; lanes beyond a step's length carry noise."""
        p, rng = self.p, self.bench.numpy_rng
        headers = {
            "length": np.array([len(step.scores) for step in steps]),
            "maximum": np.array([step.maximum for step in steps]),
        }
        self.steps.send(to_integers(pack(p.step_layout, headers)))
        fields: dict[str, list[Any]] = {"scores": [], "modes": [], "counts": []}
        for step in steps:
            size = -(-len(step.scores) // p.lanes) * p.lanes
            for name, limit in (("scores", 1 << 16), ("modes", 16), ("counts", 4096)):
                padded = rng.integers(0, limit, size)
                padded[: len(step.scores)] = getattr(step, name)
                fields[name].append(padded.reshape(-1, p.lanes))
        whole = {name: np.concatenate(parts) for name, parts in fields.items()}
        self.groups.send(to_integers(pack(p.group_layout, whole)))

    async def run(self, steps: list[Step]) -> int:
        """Reset, run steps and compare; return the cycles to the last position."""
        await self.bench.reset()
        self.offer(steps)
        p = self.p
        answers = [
            identify(
                step.scores, step.maximum, step.modes, step.counts, table=p.table, recent=p.recent
            )
            for step in steps
        ]
        total = sum(int(answer.active.sum()) for answer in answers)
        groups = sum(-(-len(step.scores) // p.lanes) for step in steps)
        cycles = await self.bench.run(
            until=lambda: (
                len(self.positions.received) == total and len(self.counts.received) == groups
            )
        )
        for _ in range(20):
            await self.bench.step()
        self._check_positions(steps, answers)
        self._check_counts(steps, answers)
        return cycles

    def _check_positions(self, steps: list[Step], answers: list[Any]) -> None:
        expected: dict[str, list[Any]] = {
            name: [] for name in ("position", "mode", "count", "recent", "graduates", "last")
        }
        for step, answer in zip(steps, answers, strict=True):
            length = len(answer.active)
            position = np.nonzero(answer.active)[0]
            expected["position"].append(position)
            expected["mode"].append(step.modes[position])
            expected["count"].append(step.counts[position])
            expected["recent"].append(position >= length - self.p.recent)
            expected["graduates"].append(position == length - self.p.recent)
            expected["last"].append(position == length - 1)
        got = self._received(self.positions, self.p.position_layout)
        cycles = [cycle for cycle, _payload in self.positions.received]
        for name, parts in expected.items():
            wanted = np.concatenate(parts).astype(np.int64)
            self.bench.compare(name, wanted, got[name], cycles=cycles)

    def _check_counts(self, steps: list[Step], answers: list[Any]) -> None:
        got = self._received(self.counts, self.p.counts_layout)
        start, lanes = 0, self.p.lanes
        for step, answer in zip(steps, answers, strict=True):
            length = len(answer.counts)
            groups = -(-length // lanes)
            for name, wanted in (("counts", answer.counts), ("modes", step.modes)):
                part = got[name][start : start + groups].reshape(-1)[:length]
                self.bench.compare(name, wanted, part)
            padded = np.zeros(groups * lanes, np.int64)
            padded[:length] = answer.active
            bits = padded.reshape(groups, lanes) @ (1 << np.arange(lanes))
            self.bench.compare("active", bits, got["active"][start : start + groups])
            last = np.arange(groups) == groups - 1
            self.bench.compare("last", last.astype(np.int64), got["last"][start : start + groups])
            start += groups

    @staticmethod
    def _received(sink: Any, layout: Any) -> Any:
        return unpack(
            layout, from_integers([payload for _cycle, payload in sink.received], layout.size)
        )


def real_steps(p: ActivePositionModuleParameters, number: int) -> list[Step]:
    """Return SmolLM2's decode steps; a position's mode is its most frequent interval so far."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    steps = []
    length = min(p.slots, TOKENS - 1)
    for index in range(number):
        scores = trace.attention_trace(LAYERS[index % len(LAYERS)], index % 9).scores
        # The intervals in earlier rows are a position's history.
        past = scores[max(length - 12, 0) : length, :length].astype(np.float64)
        shown = np.where(np.isfinite(past), past - past.max(axis=1, keepdims=True), -99.0)
        intervals = exact_interval(shown, p.table)
        tallies = np.stack([np.sum(intervals == k, axis=0) for k in range(p.table.intervals)])
        row = codes(scores[length - 1, :length])
        steps.append(
            Step(row, int(codes(values(row).max())), tallies.argmax(axis=0), tallies.max(axis=0))
        )
    return steps


def random_step(p: ActivePositionModuleParameters, rng: np.random.Generator, length: int) -> Step:
    """Return random codes, scores on and next to bounds, all kinds of modes, saturated counts."""
    scores = random_codes(rng, (length,))
    bounds = np.array(p.table.lowers)[rng.integers(0, len(p.table.lowers), length)]
    beside = (bounds + rng.integers(-1, 2, length)).astype(np.uint16)
    scores = np.where(rng.random(length) < 0.4, beside, scores)
    special = rng.choice([0xFC00, 0x7C00, 0x7E00, 0xFE00, 0, 0x8000], length)
    scores = np.where(rng.random(length) < 0.2, special, scores).astype(np.uint16)
    maximum = int(rng.choice([0, 0, 0x8000, int(random_codes(rng, (1,))[0])]))
    counts = rng.choice([0, 1, 4094, 4095, *rng.integers(0, 4096, 4)], length)
    # Half of all modes are the outer intervals.
    modes = np.where(
        rng.random(length) < 0.5,
        rng.choice([0, p.table.intervals - 1], length),
        rng.integers(0, 16, length),
    )
    return Step(scores, maximum, modes, counts)


def step_near_bounds(p: ActivePositionModuleParameters, rng: np.random.Generator) -> Step:
    """Return scores whose differences from a maximum round to a bound, or to a neighbour of it.

    The last digit of the difference decides, so that every digit of the subtraction matters.
    """
    length = min(p.slots, 6 * p.lanes)
    maximum = rng.choice((-1, 1)) * 2.0 ** rng.uniform(-14, 13)
    maximum = float(values(codes(maximum)))
    bound = rng.integers(0, len(p.table.lowers), length)
    near = values(np.array(p.table.lowers, np.uint16)[bound])
    scores = codes(near + maximum) + rng.integers(-1, 2, length)
    # The intervals on both sides end at the bound.
    return Step(
        scores.astype(np.uint16),
        int(codes(maximum)),
        np.clip(bound + rng.integers(-1, 2, length), 0, p.table.intervals - 1),
        rng.integers(0, 4096, length),
    )


def random_steps(p: ActivePositionModuleParameters, rng: np.random.Generator) -> list[Step]:
    """Return steps of critical lengths: one, near `recent`, partial groups, the capacity."""
    high = min(p.slots, 6 * p.lanes)
    lengths = [1, p.recent - 1, p.recent, p.recent + 1, p.lanes, p.lanes + 1, high]
    lengths += [int(length) for length in rng.integers(1, high + 1, 6)]
    return [random_step(p, rng, int(np.clip(length, 1, p.slots))) for length in lengths]


@cocotb.test()
async def real_scores(dut: Any) -> None:
    """Run SmolLM2's scores: `lanes` positions per cycle."""
    bench = ApidBench(dut, "real_scores")
    steps = real_steps(bench.p, 9 if context()["full"] else 4)
    await bench.run(steps)
    groups = sum(-(-len(step.scores) // bench.p.lanes) for step in steps)
    seen = [cycle for cycle, _payload in bench.counts.received]
    length = len(steps[0].scores)
    bench.bench.record(
        cycles=seen[-1] - seen[0] + 1,
        ideal_cycles=groups,
        active_share=round(len(bench.positions.received) / (length * len(steps)), 3),
        tensors=f"SmolLM2 layers {LAYERS}, {len(steps)} steps of {length} positions",
    )


@cocotb.test()
async def all_active(dut: Any) -> None:
    """Accept a whole step of active positions at full rate without a consumer."""
    bench = ApidBench(dut, "all_active")
    p = bench.p
    step = Step(
        codes(np.full(p.slots, -100.0)),
        int(codes(0.0)),
        np.full(p.slots, 15),
        np.full(p.slots, 7),
    )
    bench.positions.pauses = iter(lambda: True, False)
    await bench.bench.reset()
    bench.offer([step])
    cycles = await bench.bench.run(until=lambda: len(bench.counts.received) == p.groups)
    latency = p.add_stages + 1
    bench.bench.compare("cycles", np.array([p.groups + latency]), np.array([cycles]))
    bench.positions.pauses = bench.bench.pauses("none")
    await bench.bench.run(until=lambda: len(bench.positions.received) == p.slots)
    got = bench._received(bench.positions, p.position_layout)["position"]
    bench.bench.compare("position", np.arange(p.slots), got)


@cocotb.test()
async def differences(dut: Any) -> None:
    """Subtract maxima of all sizes from scores whose differences are at the bounds."""
    bench = ApidBench(dut, "differences")
    rng = bench.bench.numpy_rng
    await bench.run([step_near_bounds(bench.p, rng) for _ in range(2000)])


stalls = stall_test(
    partial(ApidBench, counts="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
)
resets = reset_test(
    partial(ApidBench, counts="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
    longest=60,
    times=6,
)
