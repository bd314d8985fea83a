"""Bench of LAD's tiles: steps, linear layers, special functions, and the memory outside."""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import ONE, codes, values
from golden.lad.lad_tile import Head, LadTile, Step
from golden.lad.lad_tiles import group_numbers
from golden.lad.synthetic_trace import SyntheticTrace
from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.parameters import LadTileParameters, LadTilesParameters
from testbenches.bench import Bench, catalog_parameters, record_fact
from testbenches.lad.linear.tb_linear_module import (
    Task,
    check_sums,
    random_task,
    task_payloads,
)
from testbenches.lad.outside import Outside
from testbenches.lad.sfm.tb_special_function_module import Work as Rows
from testbenches.lad.sfm.tb_special_function_module import check_results, random_rows
from testbenches.lad.vectors import LAYERS, head_vectors, random_codes
from testbenches.packing import from_integers, pack, to_integers, unpack

Codes = NDArray[np.uint16]
Work = list[tuple[int, Codes, Codes, Codes]]
"""Steps: head, query, key and value."""


@dataclass(frozen=True)
class Load:
    """Steps of heads, and linear layers and rows of special functions in between."""

    steps: Work
    tasks: Sequence[Task] = ()
    rows: Sequence[Rows] = ()


MOST = (1 << COUNT_BITS) - 1
"""Largest value of a counter."""

FEW, MANY = 40, 128
"""Positions of the smallest presets, and of a test with members after them."""

OUTPUTS = ("outputs", "sums", "results")
"""Output streams that begin and end in the tile."""


class LadTileBench:
    """One or several tiles, the memory outside, and the model.

    Heads are numbered over all tiles, round-robin.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        there: Any = catalog_parameters()
        tiles = isinstance(there, LadTilesParameters)
        self.shared: LadTilesParameters | None = there if tiles else None
        self.p: LadTileParameters = there.tile if tiles else there
        self.bench = Bench(dut, salt)
        self.steps = self.bench.source("steps", source)
        self.outputs = self.bench.sink("outputs", sink)
        self.linear = {
            name: self.bench.source(name, source) for name in ("tasks", "inputs", "weights")
        }
        self.sums = self.bench.sink("sums", sink)
        self.functions = {
            name: self.bench.source(name, source) for name in ("vectors", "factors", "addends")
        }
        self.results = self.bench.sink("results", sink)
        self.outside = Outside(self.bench, self.p, source, sink, shared=self.shared)
        self.coming = self.bench.source("coming", source) if self.p.prefetched else None

    @property
    def heads(self) -> int:
        """Number of heads of all tiles."""
        return len(self.outside.heads)

    @property
    def groups(self) -> list[list[int]]:
        """The indices of the heads of each group, which share keys and values."""
        there = self.shared or LadTilesParameters(tile=self.p, tiles=1)
        return [group_numbers(there, group) for group in range(self.heads // self.p.shared)]

    def empty(self) -> list[Head]:
        """Return heads without positions."""
        return [Head.empty(self.p) for _ in range(self.heads)]

    def send(self, work: Work, *, later: int = 0) -> list[int]:
        """Queue steps after the existing positions of each head; return the last ones, not queued.

        All of them are announced.
        """
        lengths, ends = [head.length for head in self.outside.heads], []
        for head, *_vectors in work:
            lengths[head] += 1
            ends.append(lengths[head])
        heads = self.outside.place(np.array([head for head, *_vectors in work]))
        vectors = {
            name: np.stack([step[at] for step in work])
            for at, name in enumerate(("query", "key", "value"), start=1)
        }
        layout = self.outside.named(self.p.step_layout)
        steps = to_integers(pack(layout, heads | vectors | {"length": np.array(ends)}))
        self.steps.send(steps[: len(steps) - later])
        if self.coming:
            self.coming.send(to_integers(pack(self.outside.named(self.p.head_layout), heads)))
        return steps[len(steps) - later :]

    def send_task(self, task: Task, *, later: int = 0) -> list[int]:
        """Queue a linear layer; return the last weights, not queued."""
        payloads = task_payloads(self.p.linear, task, self.bench.numpy_rng, self.shared)
        weights = payloads["weights"]
        payloads["weights"] = weights[: len(weights) - later]
        for name, source in self.linear.items():
            source.send(payloads[name])
        return weights[len(weights) - later :]

    def random_task(self) -> Task:
        """Return a linear layer of all tiles."""
        rng = self.bench.numpy_rng
        return random_task(self.p.linear, rng, tiles=self.outside.tiles)

    def send_rows(self, rows: Rows) -> None:
        """Queue rows of the special function module."""
        for name, payloads in rows.payloads().items():
            self.functions[name].send(payloads)

    def offer(self, load: Load) -> None:
        """Queue all of a load immediately."""
        self.send(load.steps)
        for task in load.tasks:
            self.send_task(task)
        for rows in load.rows:
            self.send_rows(rows)

    async def run(
        self,
        load: Load,
        *,
        heads: list[Head] | None = None,
        after: int = 0,
        announced: int = 0,
    ) -> list[Step]:
        """Reset, run steps, and compare all outputs and the final data outside.

        Linear layers and special functions, if any, are queued `after` some cycles; heads can have
        positions. All steps can be `announced` some cycles in advance.
        """
        await self.bench.reset()
        tile = LadTile(parameters=self.p, heads=heads or self.empty(), tiles=self.outside.tiles)
        self.outside.load(tile.heads)
        work, tasks, rows = load.steps, load.tasks, load.rows
        # Some steps are queued when all other work is done, to check that nothing is blocked.
        some = len(work) // 3 if tasks or rows else 0
        held = self.send(work, later=len(work) if announced else some)
        total = sum(task.outputs(self.p.linear) for task in tasks)
        results = sum(len(part) for one in rows for part in one.results)
        answers = [tile.step(*one) for one in work]
        # The write-back of the last step follows its output.
        columns = len(work) * self.p.ac.columns
        marks = sum(answer.moved.groups for answer in answers)
        wrote = {"columns": columns, "marks": marks, "centres": len(work)}
        before = {name: len(self.outside.sinks[name].received) for name in wrote}
        for _ in range(after + announced):
            await self.bench.step()
        for task, row in zip_longest(tasks, rows):
            if task:
                # A tile that already has its weights waits for the others.
                last = self.send_task(task, later=1)
                await self._pause()
                self.linear["weights"].send(last)
                await self._pause()
            if row:
                self.send_rows(row)
                await self._pause()
        self.steps.send(held)
        await self.bench.run(
            until=lambda: (
                len(self.outputs.received) == len(work)
                and len(self.sums.received) == total
                and len(self.results.received) == results
                and all(
                    len(self.outside.sinks[name].received) == before[name] + count
                    for name, count in wrote.items()
                )
            )
        )
        for _ in range(20):
            await self.bench.step()
        self._check_outputs(work, answers)
        self.outside.check(tile.heads, answers)
        if tasks:
            check_sums(self.bench, self.p.linear, list(tasks), self.sums)
        if rows:
            check_results(self.bench, list(rows), self.results)
        return answers

    async def _pause(self) -> None:
        """Wait for some cycles."""
        for _ in range(self.bench.rng.randint(1, 400)):
            await self.bench.step()

    def _check_outputs(self, work: Work, answers: list[Step]) -> None:
        layout = self.outside.named(self.p.output_layout)
        cycles = [cycle for cycle, _payload in self.outputs.received]
        received = [payload for _cycle, payload in self.outputs.received]
        got = unpack(layout, from_integers(received, layout.size))
        heads = np.array([head for head, *_ in work])
        self.bench.compare("head", heads, self.outside.number(got), cycles=cycles)
        expected = np.stack([answer.output for answer in answers]).astype(np.int64)
        self.bench.compare("output", expected, got["values"], cycles=cycles, show=hex)
        flags = np.array([answer.not_positive for answer in answers]).astype(np.int64)
        self.bench.compare("not_positive", flags, got["not_positive"], cycles=cycles)


def real_work(bench: LadTileBench, length: int, *, groups: int) -> Work:
    """Return SmolLM2's decoding of some interleaved groups, each of another layer."""
    p = bench.p
    size, shared = p.vector.head_size, p.shared
    parts = []
    for group, numbers in enumerate(bench.groups[:groups]):
        layer, first = LAYERS[group % len(LAYERS)], group * shared % 9
        keys, vectors = (
            head_vectors(name, size, layer=layer, head=first)[:length] for name in "kv"
        )
        for one, number in enumerate(numbers):
            own = head_vectors("q", size, layer=layer, head=(first + one) % 9)[:length]
            parts.append((number, codes(values(own) / np.sqrt(size)), keys, vectors))
    return [
        (number, queries[now], keys[now], vectors[now])
        for now in range(length)
        for number, queries, keys, vectors in parts
    ]


def long_steps(p: LadTileParameters, layer: int) -> list[tuple[Codes, Codes, Codes]]:
    """Return query, key and value of each token of a long text, in a head of a layer."""
    size = p.vector.head_size
    queries, keys, vectors = (head_vectors(name, size, layer=layer, long=True) for name in "qkv")
    return list(zip(codes(values(queries) / np.sqrt(size)), keys, vectors, strict=True))


def synthetic_steps(p: LadTileParameters) -> list[tuple[Codes, Codes, Codes]]:
    """Return query, key and value of each step of a trace with the paper's locality."""
    drawn = SyntheticTrace(head_size=p.vector.head_size).draw()
    return list(zip(*(codes(part) for part in drawn), strict=True))


def random_order(
    bench: LadTileBench, rng: np.random.Generator, steps: int, *, most: int | None = None
) -> NDArray[np.int64]:
    """Return a random order of at least `steps` steps: numbers of groups, `most` different ones."""
    there = rng.permutation(len(bench.groups))[:most]
    return rng.choice(there, -(-steps // bench.p.shared))


def random_work(bench: LadTileBench, rng: np.random.Generator, turns: NDArray[np.int64]) -> Work:
    """Return interleaved steps of groups, with keys that are collinear, equal, or zero."""
    p, groups = bench.p, bench.groups
    size = p.vector.head_size
    work: Work = []
    keys: list[list[Codes]] = [[] for _ in groups]
    for group in turns:
        if len(keys[group]) == p.slots:
            continue
        key = codes(rng.standard_normal(size) * rng.choice([0.5, 2]))
        if keys[group] and rng.random() < 0.5:
            key = keys[group][int(rng.integers(0, len(keys[group])))]
            key = codes(values(key) * rng.choice([1, -1, 2, -0.5, 1.3]))
        elif rng.random() < 0.1:
            key = np.zeros(size, np.uint16)
        keys[group].append(key)
        value = random_codes(rng, (size,)) if rng.random() < 0.2 else codes(rng.normal(size=size))
        for head in groups[group]:
            query = codes(rng.standard_normal(size) * rng.choice([0.1, 1, 4]))
            work.append((head, query, key, value))
    return work


def turns_of_all(bench: LadTileBench, rng: np.random.Generator, steps: int) -> NDArray[np.int64]:
    """Return an order of at least `steps` steps: each group again only after all others."""
    return np.resize(rng.permutation(len(bench.groups)), -(-steps // bench.p.shared))


def begun_heads(bench: LadTileBench, groups: list[list[int]], length: int) -> list[Head]:
    """Return heads; in some groups, positions have counters of any value."""
    p, rng, heads = bench.p, bench.bench.numpy_rng, bench.empty()
    intervals = p.table.intervals
    for numbers in groups:
        keys, vectors = codes(rng.standard_normal((2, length, p.vector.head_size)))
        for head in (heads[number] for number in numbers):
            head.length = length
            head.keys[:length], head.values[:length] = keys, vectors
            head.centres[:length] = np.arange(length)
            head.norms[:length] = head.ratios[:length] = ONE
            head.modes[:length] = rng.integers(0, intervals, length)
            often = rng.integers(1, 1 << COUNT_BITS, (length, intervals))
            head.counters[:length] = often >> rng.integers(0, COUNT_BITS, often.shape)
            head.counts[:length] = rng.integers(1, 1 << COUNT_BITS, length)
            # Counters at their end are not incremented.
            full = rng.random(length) < 0.2
            head.counters[:length][full] = head.counts[:length][full] = MOST
    return heads


def saturated(before: dict[int, Head], steps: Work, answers: list[Step]) -> Counter[str]:
    """Return the numbers of full counts and counters of each head's first step that would overflow.

    The counts are those of inactive positions; counters of active ones are full in all intervals.
    """
    found, first = Counter[str](), dict[int, Step]()
    for (number, *_vectors), answer in zip(steps, answers, strict=True):
        first.setdefault(number, answer)
    for number, answer in first.items():
        head = before[number]
        full = (head.counts == MOST) & (head.counters == MOST).all(axis=1)
        active = np.isin(np.arange(len(full)), answer.active)
        found.update(counts=int((full & ~active).sum()), counters=int((full & active).sum()))
    return found


async def check_any_counts(bench: LadTileBench) -> None:
    """Begin with heads whose counters have any value, and announce all steps long in advance."""
    p, rng = bench.p, bench.bench.numpy_rng
    length, steps = p.slots // 2, min(p.slots // 2, 6)
    begun = [bench.groups[place] for place in rng.permutation(len(bench.groups))[:9]]
    heads = begun_heads(bench, begun, length)
    size = p.vector.head_size
    work: Work = []
    for _ in range(steps):
        for group in begun:
            key, value = codes(rng.standard_normal((2, size)))
            work += [(head, codes(rng.standard_normal(size)), key, value) for head in group]
    before = {number: copy.deepcopy(heads[number]) for group in begun for number in group}
    answers = await bench.run(Load(work), heads=heads, announced=300)
    found = saturated(before, work, answers)
    for name, count in found.items():
        record_fact("saturated", name, count)


async def check_members(bench: LadTileBench) -> None:
    """Begin with heads whose keys have few directions, and more than `FEW` positions."""
    p, rng = bench.p, bench.bench.numpy_rng
    size, length, steps = p.vector.head_size, min(p.slots - 4, 120), 4
    begun = [bench.groups[place] for place in rng.permutation(len(bench.groups))[:4]]
    heads = begun_heads(bench, begun, length)
    work: Work = []
    for group in begun:
        directions = rng.standard_normal((5, size))
        # The first keys are the centres of all others, with ratios of either sign.
        centre = np.arange(length) % len(directions)
        ratio = rng.choice([-1, 0.5, 2, 1.3], length)
        ratio[: len(directions)] = 1
        keys = codes(directions[centre] * ratio[:, np.newaxis])
        for head in (heads[number] for number in group):
            head.centres[:length], head.ratios[:length] = centre, codes(ratio)
            head.keys[:length] = keys
            head.norms[:length] = codes(np.linalg.norm(values(keys), axis=1))
    for _ in range(steps):
        for group in begun:
            key, value = codes(rng.standard_normal((2, size)))
            work += [(head, codes(rng.standard_normal(size)), key, value) for head in group]
    ratios = {number: heads[number].ratios[:length].copy() for group in begun for number in group}
    answers = await bench.run(Load(work), heads=heads)
    # Scores of positions whose keys are not fetched are those of their centres, rescaled.
    rescaled = [
        np.setdiff1d(np.nonzero(ratios[number] != ONE)[0], answer.fetched)
        for (number, *_vectors), answer in zip(work, answers, strict=True)
    ]
    members = int((np.concatenate(rescaled) >= FEW).sum())
    assert members > 0
    record_fact("members of centres", f"from position {FEW} on", members)


def short_load(bench: LadTileBench, length: int) -> Load:
    """Return short steps of all groups, with linear layers and functions in between."""
    rng = bench.bench.numpy_rng
    tasks = [bench.random_task() for _ in range(4)]
    rows = [random_rows(bench.p.sfm, rng, 1) for _ in range(4)]
    return Load(random_work(bench, rng, turns_of_all(bench, rng, length)), tasks, rows)


def random_load(
    bench: LadTileBench, steps: int, *, most: int, tasks: int = 0, rows: int = 0
) -> Load:
    """Return random steps of `most` groups, with linear layers and functions in between."""
    rng = bench.bench.numpy_rng
    return Load(
        random_work(bench, rng, random_order(bench, rng, steps, most=most)),
        [bench.random_task() for _ in range(tasks)],
        [random_rows(bench.p.sfm, rng, 1) for _ in range(rows)],
    )


async def check_interruptions(bench: LadTileBench) -> None:
    """Run as many steps as there are slots, and request the vector units at any cycle.

    Between the first step's begin and its maximum, all steps can be waiting for stages 5 and 6.
    """
    rng, slots = bench.bench.numpy_rng, MOST_STEPS * bench.outside.tiles
    for after in range(0, 40, 2):
        # A third of the steps follows the linear layer.
        work = random_work(bench, rng, turns_of_all(bench, rng, 3 * slots // 2))
        await bench.run(Load(work, [bench.random_task()]), after=after)


async def check_all_active(bench: LadTileBench) -> None:
    """Begin heads whose positions are all active in every step."""
    p, rng = bench.p, bench.bench.numpy_rng
    size, length = p.vector.head_size, max(p.slots - 8, 0)
    begun = bench.groups[: 2 * bench.outside.tiles]
    # Equal scores are in the top interval; the modes differ, and their counters cannot be exceeded.
    keys = np.zeros((p.slots, size), np.uint16)
    work: Work = []
    for _ in range(min(6, p.slots - length)):
        for group in begun:
            value = codes(rng.standard_normal(size))
            work += [(head, codes(rng.standard_normal(size)), keys[0], value) for head in group]
    heads = bench.empty()
    for group in begun:
        vectors = codes(rng.standard_normal((length, size)))
        for head in (heads[number] for number in group):
            head.length, head.counts[:length] = length, 4000
            head.centres[:length] = np.arange(length)
            head.norms[:length] = head.ratios[:length] = ONE
            head.values[:length] = vectors
    answers = await bench.run(Load(work), heads=heads)
    # Later, graduating positions have the mode of their score.
    for answer in answers[: len(begun) * p.shared]:
        assert len(answer.active) == length + 1
